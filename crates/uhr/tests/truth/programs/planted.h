/* What every planted C and C++ program measures itself with. */
#ifndef PLANTED_H
#define PLANTED_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
#define INLINED static inline __attribute__((always_inline))

/* One step of work: a multiplication that no compiler can leave out. */
#define STEP(x) do { (x) = (x) * 6364136223846793005u + 1442695040888963407u; __asm__ volatile("" : "+r"(x)); } while (0)

/* gcc 12 leaves the frame pointer out of leaf functions that do not touch the stack, whatever it is told. */
#ifdef KEEP_FRAMES
#define FRAME() __asm__ volatile("" : : "r"(__builtin_frame_address(0)))
#else
#define FRAME() (void)0
#endif

static inline uint64_t clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static inline uint64_t cpu_ns(void) { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }
static inline uint64_t wall_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

/* How long this thread could have run but did not, by the scheduler's count. */
static inline uint64_t run_delay_ns(void) {
    unsigned long long on = 0, delay = 0;
    FILE *file = fopen("/proc/thread-self/schedstat", "r");
    if (!file) return 0;
    if (fscanf(file, "%llu %llu", &on, &delay) != 2) delay = 0;
    fclose(file);
    return delay;
}

/* Lengths of work vary at random around their mean, so that no sampling clock keeps step with them. */
static inline unsigned around(unsigned mean) {
    static uint64_t seed = 88172645463325252u;
    seed ^= seed << 13; seed ^= seed >> 7; seed ^= seed << 17;
    return mean / 2 + (unsigned)(seed % mean);
}

#endif
