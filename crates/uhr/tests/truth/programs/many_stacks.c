/* Half of the main thread's time in one path, the other half in 30,000 different stacks, while six threads contend for a lock.
   Argument: for how many seconds of its CPU time. */
#include "planted.h"
#include <pthread.h>

static volatile unsigned sink;
static volatile int over;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

NOINLINE void leaf(void) { for (int i = 0; i < 3000; i++) sink += i; }

typedef void step_fn(int, unsigned);
step_fn step0, step1, step2, step3, step4, step5, step6, step7;
static step_fn *const steps[8] = {step0, step1, step2, step3, step4, step5, step6, step7};
/* Which way it goes follows from the seed. */
#define STEP_OF(n) NOINLINE void step##n(int depth, unsigned seed) { \
    seed = seed * 1664525 + 1013904223; \
    if (depth) steps[seed >> 24 & 7](depth - 1, seed); else leaf(); \
    sink++; }
STEP_OF(0) STEP_OF(1) STEP_OF(2) STEP_OF(3) STEP_OF(4) STEP_OF(5) STEP_OF(6) STEP_OF(7)

NOINLINE void hot_leaf(uint64_t ns) { uint64_t end = cpu_ns() + ns; while (cpu_ns() < end) leaf(); }
NOINLINE void hot_path(uint64_t ns) { hot_leaf(ns); sink++; }
NOINLINE void cold_paths(uint64_t ns) {
    static unsigned seed = 7;
    for (uint64_t end = cpu_ns() + ns; cpu_ns() < end;) {
        seed = seed * 22695477 + 1;
        step0(12, (seed >> 4) % 30000);
    }
}
NOINLINE void contends(void) {
    while (!over) { pthread_mutex_lock(&lock); leaf(); pthread_mutex_unlock(&lock); usleep(200); }
}
static void *contender(void *unused) { contends(); return unused; }

int main(int argc, char **argv) {
    double seconds = argc > 1 ? atof(argv[1]) : 2;
    pthread_t threads[6];
    for (int i = 0; i < 6; i++) pthread_create(&threads[i], 0, contender, 0);
    uint64_t hot = 0, cold = 0, began = cpu_ns();
    while ((double)(cpu_ns() - began) < seconds * 1e9) {
        uint64_t at = cpu_ns();
        hot_path(around(20000000));
        hot += cpu_ns() - at;
        at = cpu_ns();
        cold_paths(around(20000000));
        cold += cpu_ns() - at;
    }
    over = 1;
    for (int i = 0; i < 6; i++) pthread_join(threads[i], 0);
    printf("{\"hot_path\": %llu, \"cold_paths\": %llu}\n", (unsigned long long)hot, (unsigned long long)cold);
    return 0;
}
