/* Relays of three threads: the first is woken by its timer and wakes the second, which wakes the third. They hand over by
   a futex, by a pipe, and over the loopback. Each says how long it was away in its waits.
   relay ROUNDS */
#include "planted.h"
#include <arpa/inet.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/prctl.h>
#include <sys/socket.h>

enum { FUTEX, PIPE, LOOPBACK, MEANS };
static const char *const names[MEANS] = {"futex", "pipe", "loopback"};
static sem_t posts[2];
static int ends[MEANS][2][2];
static int rounds;

static void loopback(int pair[2]) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    pair[1] = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listening, (struct sockaddr *)&at, size) || listen(listening, 1) || getsockname(listening, (struct sockaddr *)&at, &size) ||
        connect(pair[1], (struct sockaddr *)&at, size)) exit(1);
    pair[0] = accept(listening, 0, 0);
    close(listening);
}

static void wake(int means, int leg) {
    if (means == FUTEX) sem_post(&posts[leg]);
    else if (write(ends[means][leg][1], "x", 1) != 1) exit(1);
}
/* Away from the call to the return of it, less what the thread ran meanwhile. */
NOINLINE uint64_t waits_for_turn(int means, int leg) {
    char byte;
    uint64_t wall = wall_ns(), cpu = cpu_ns();
    if (means == FUTEX) sem_wait(&posts[leg]);
    else if (read(ends[means][leg][0], &byte, 1) != 1) exit(1);
    cpu = cpu_ns() - cpu;
    return wall_ns() - wall - cpu;
}
static uint64_t naps(void) {
    struct timespec t = {0, 4000000};
    uint64_t wall = wall_ns(), cpu = cpu_ns();
    nanosleep(&t, 0);
    cpu = cpu_ns() - cpu;
    return wall_ns() - wall - cpu;
}

struct runner { int means, place; uint64_t away, delay; pthread_t id; };

static void *run(void *of) {
    struct runner *runner = of;
    char name[16];
    snprintf(name, sizeof name, "%s-%d", names[runner->means], runner->place);
    prctl(PR_SET_NAME, name);
    for (int i = 0; i < rounds; i++) {
        runner->away += runner->place == 1 ? naps() : waits_for_turn(runner->means, runner->place - 2);
        if (runner->place < 3) wake(runner->means, runner->place - 1);
    }
    runner->delay = run_delay_ns();
    return 0;
}

int main(int argc, char **argv) {
    static struct runner runners[MEANS][3];
    rounds = argc > 1 ? atoi(argv[1]) : 300;
    for (int leg = 0; leg < 2; leg++) {
        sem_init(&posts[leg], 0, 0);
        if (pipe(ends[PIPE][leg])) return 1;
        loopback(ends[LOOPBACK][leg]);
    }
    for (int means = 0; means < MEANS; means++)
        for (int place = 0; place < 3; place++) {
            runners[means][place] = (struct runner){.means = means, .place = place + 1};
            pthread_create(&runners[means][place].id, 0, run, &runners[means][place]);
        }
    printf("{\"pid\": %d", getpid());
    for (int means = 0; means < MEANS; means++)
        for (int place = 0; place < 3; place++) {
            struct runner *runner = &runners[means][place];
            pthread_join(runner->id, 0);
            printf(", \"%s-%d\": {\"least_ns\": %llu, \"most_ns\": %llu}", names[means], place + 1,
                   (unsigned long long)(runner->away - runner->delay), (unsigned long long)runner->away);
        }
    printf("}\n");
    return 0;
}
