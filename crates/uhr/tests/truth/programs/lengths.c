/* Threads that wait for 0.1 ms, 1 ms, 10 ms and 100 ms in any order, each length in a function of its own and all by the
   same system call: only their stacks tell them apart. One thread naps, one waits for a word that nobody changes. One
   sleeps for 10 ms only, and one for a second. Each says how long it was away by function.
   lengths SECONDS */
#include "planted.h"
#include <linux/futex.h>
#include <pthread.h>
#include <sys/prctl.h>

static uint32_t word;
static volatile int kept;

static void nap(long us) { struct timespec t = {us / 1000000, us % 1000000 * 1000}; nanosleep(&t, 0); }
static void wait_word(long us) {
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &t, 0, 0);
}

/* Away from the call to the return of it, less what the thread ran meanwhile. */
#define WAITS(name, how, us) \
    NOINLINE uint64_t name(void) { \
        uint64_t wall = wall_ns(), cpu = cpu_ns(); \
        how(us); \
        cpu = cpu_ns() - cpu; \
        kept++; \
        return wall_ns() - wall - cpu; \
    }
WAITS(naps_100us, nap, 100)
WAITS(naps_1ms, nap, 1000)
WAITS(naps_10ms, nap, 10000)
WAITS(naps_100ms, nap, 100000)
WAITS(word_100us, wait_word, 100)
WAITS(word_1ms, wait_word, 1000)
WAITS(word_10ms, wait_word, 10000)
WAITS(word_100ms, wait_word, 100000)
WAITS(naps_exactly_10ms, nap, 10000)
WAITS(naps_1s, nap, 1000000)

/* `often`: how many of a thousand waits it is. */
struct length { const char *name; uint64_t (*wait)(void); unsigned often; uint64_t away; };
struct job { const char *thread; struct length lengths[5]; uint64_t delay; uint64_t seed; pthread_t id; };
static uint64_t end_ns;

static struct length *drawn(struct job *job) {
    job->seed ^= job->seed << 13; job->seed ^= job->seed >> 7; job->seed ^= job->seed << 17;
    unsigned lot = (unsigned)(job->seed % 1000);
    struct length *length = job->lengths;
    while (lot >= length->often) lot -= length++->often;
    return length;
}

static void *work(void *of) {
    struct job *job = of;
    prctl(PR_SET_NAME, job->thread);
    while (wall_ns() < end_ns) {
        struct length *length = drawn(job);
        length->away += length->wait();
    }
    job->delay = run_delay_ns();
    return 0;
}

int main(int argc, char **argv) {
    end_ns = wall_ns() + 1000000000ull * (unsigned)(argc > 1 ? atoi(argv[1]) : 8);
    struct job jobs[] = {
        {"napper", {{"naps_100us", naps_100us, 845, 0}, {"naps_1ms", naps_1ms, 130, 0}, {"naps_10ms", naps_10ms, 22, 0}, {"naps_100ms", naps_100ms, 3, 0}}, 0, 88172645463325252u, 0},
        {"worder", {{"word_100us", word_100us, 845, 0}, {"word_1ms", word_1ms, 130, 0}, {"word_10ms", word_10ms, 22, 0}, {"word_100ms", word_100ms, 3, 0}}, 0, 6364136223846793005u, 0},
        {"in-step", {{"naps_exactly_10ms", naps_exactly_10ms, 1000, 0}}, 0, 1, 0},
        {"sleeper", {{"naps_1s", naps_1s, 1000, 0}}, 0, 1, 0},
    };
    unsigned count = sizeof jobs / sizeof *jobs;
    for (unsigned i = 0; i < count; i++) pthread_create(&jobs[i].id, 0, work, &jobs[i]);
    for (unsigned i = 0; i < count; i++) pthread_join(jobs[i].id, 0);
    printf("{");
    for (unsigned i = 0; i < count; i++) {
        printf("%s\"%s\": {\"delay_ns\": %llu", i ? ", " : "", jobs[i].thread, (unsigned long long)jobs[i].delay);
        for (struct length *length = jobs[i].lengths; length->wait; length++)
            printf(", \"%s\": %llu", length->name, (unsigned long long)length->away);
        printf("}");
    }
    printf("}\n");
    return 0;
}
