/* Threads that make known numbers of system calls, which end in known ways. With "loop" as argument: as many as possible
   in some seconds, and what they were. */
#include "planted.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

static volatile uint64_t kept;
static int ends[2];

NOINLINE uint64_t asks(void) {
    for (int i = 0; i < 20000; i++) kept += (uint64_t)syscall(SYS_getppid);
    return 20000;
}
NOINLINE uint64_t polls(void) {
    int pair[2], failed = 0;
    char byte = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair)) exit(1);
    for (int i = 0; i < 3000; i++) failed += recv(pair[0], &byte, 1, 0) < 0 && errno == EAGAIN;
    for (int i = 0; i < 500; i++) if (send(pair[1], &byte, 1, 0) != 1 || recv(pair[0], &byte, 1, 0) != 1) exit(1);
    return (uint64_t)failed;
}
NOINLINE uint64_t seeks(void) {
    int failed = 0;
    for (int i = 0; i < 200; i++) failed += open("/there/is/no/such/file", O_RDONLY) < 0;
    return (uint64_t)failed;
}
NOINLINE uint64_t naps(void) {
    uint64_t start = wall_ns();
    for (int i = 0; i < 40; i++) usleep(5000);
    return wall_ns() - start;
}
/* Still in it when the program ends. */
NOINLINE uint64_t listens(void) {
    char byte;
    return (uint64_t)read(ends[0], &byte, 1);
}
static void handle(int number) { (void)number; }
NOINLINE uint64_t raises(void) {
    for (int i = 0; i < 50; i++) pthread_kill(pthread_self(), SIGUSR1);
    return 50;
}

struct job { const char *name; uint64_t (*work)(void); uint64_t value; pthread_t id; };
static void *run(void *of) { struct job *job = of; prctl(PR_SET_NAME, job->name); job->value = job->work(); return 0; }

static volatile int over;
static uint64_t rests(void) { uint64_t count = 0; while (!over) { usleep(1000); count++; } return count; }
static int loop(void) {
    struct job jobs[20];
    uint64_t start, delay, calls = 0, slept = 0;
    for (int i = 0; i < 20; i++) {
        jobs[i] = (struct job){.name = "rests", .work = rests};
        pthread_create(&jobs[i].id, 0, run, &jobs[i]);
    }
    delay = run_delay_ns();
    for (start = wall_ns(); wall_ns() < start + 12000000000ull; calls += 1000)
        for (int i = 0; i < 1000; i++) kept += (uint64_t)syscall(SYS_getppid);
    delay = run_delay_ns() - delay;
    over = 1;
    for (int i = 0; i < 20; i++) { pthread_join(jobs[i].id, 0); slept += jobs[i].value; }
    printf("{\"getppid\": %llu, \"clock_nanosleep\": %llu, \"delay_ns\": %llu}\n", (unsigned long long)calls,
           (unsigned long long)slept, (unsigned long long)delay);
    return 0;
}

int main(int count, char **arguments) {
    if (count > 1 && !strcmp(arguments[1], "loop")) return loop();
    struct job jobs[] = {{.name = "asks", .work = asks}, {.name = "polls", .work = polls}, {.name = "seeks", .work = seeks},
                         {.name = "naps", .work = naps}, {.name = "raises", .work = raises}, {.name = "listens", .work = listens}};
    unsigned all = sizeof jobs / sizeof *jobs;
    struct sigaction action = {.sa_handler = handle};
    sigaction(SIGUSR1, &action, 0);
    if (pipe(ends)) return 1;
    for (unsigned i = 0; i < all; i++) pthread_create(&jobs[i].id, 0, run, &jobs[i]);
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (!child) _exit(0);
        waitpid(child, 0, 0);
    }
    for (unsigned i = 0; i + 1 < all; i++) pthread_join(jobs[i].id, 0);
    printf("{");
    for (unsigned i = 0; i + 1 < all; i++) printf("\"%s\": %llu, ", jobs[i].name, (unsigned long long)jobs[i].value);
    printf("\"threads\": %u}\n", all);
    return 0;
}
