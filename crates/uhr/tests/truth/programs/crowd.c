/* More threads than one look takes: half wait for one condition all the time, half sleep again and again. Each adds up
   how long it was off its CPU. */
#include "planted.h"
#include <pthread.h>
#include <sys/prctl.h>

enum { THREADS = 600 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static volatile int over;
static uint64_t away_ns[THREADS];

NOINLINE void waits(void) {
    pthread_mutex_lock(&lock);
    while (!over) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}
NOINLINE void sleeps(void) {
    while (!over) usleep(650000);
}
static void *run(void *of) {
    uint64_t *away = of, wall = wall_ns(), cpu = cpu_ns(), delay = run_delay_ns();
    int is_waiter = (away - away_ns) % 2;
    prctl(PR_SET_NAME, is_waiter ? "waiter" : "sleeper");
    if (is_waiter) waits(); else sleeps();
    *away = wall_ns() - wall - (cpu_ns() - cpu) - (run_delay_ns() - delay);
    return 0;
}

int main(void) {
    pthread_t threads[THREADS];
    uint64_t sums[2] = {0};
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, run, &away_ns[i]);
    usleep(3000000);
    pthread_mutex_lock(&lock);
    over = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < THREADS; i++) { pthread_join(threads[i], 0); sums[i % 2] += away_ns[i]; }
    printf("{\"sleeper\": %llu, \"waiter\": %llu}\n", (unsigned long long)sums[0], (unsigned long long)sums[1]);
    return 0;
}
