/* Frames that are left in unusual ways, each spun in for a while: realigned, below a signal handler on a stack of its own,
   called back by the C library, called last by a function that expects no return, very deep, in the vDSO, on a thread.
   odd_frames [SECONDS] */
#include "planted.h"
#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

static uint64_t each_ns;
static volatile uint64_t kept;

#define SPIN() do { uint64_t end = cpu_ns() + each_ns, x = 1; do for (int i = 0; i < 20000; i++) STEP(x); while (cpu_ns() < end); kept = x; } while (0)

NOINLINE void in_aligned(char *at) { SPIN(); kept += at[0]; }
NOINLINE void aligned(int length) {
    char here[64] __attribute__((aligned(64)));
    char *more = alloca(length);
    memset(here, length, sizeof here);
    memset(more, length, length);
    in_aligned(here);
    kept += here[3] + more[length - 1];
}

NOINLINE void in_handler(void) { SPIN(); }
NOINLINE void on_signal(int signal) { in_handler(); kept += signal; }
NOINLINE void interrupted(void) { raise(SIGUSR1); kept++; }

NOINLINE void in_callback(void) { SPIN(); }
NOINLINE int compare(const void *a, const void *b) {
    static int count;
    if (!count++) in_callback();
    return *(const int *)a - *(const int *)b;
}
NOINLINE void sorted(void) {
    int numbers[64];
    for (int i = 0; i < 64; i++) numbers[i] = i * 37 % 64;
    qsort(numbers, 64, sizeof *numbers, compare);
    kept += numbers[5];
}

NOINLINE __attribute__((noreturn)) void in_last(void) { SPIN(); pthread_exit(0); }
NOINLINE __attribute__((noreturn)) void last(void) { in_last(); }
static void *thread(void *nothing) { (void)nothing; last(); }

NOINLINE void in_deep(void) { SPIN(); }
NOINLINE int deep(int left) {
    volatile int own[4] = {left};
    if (left) return deep(left - 1) + own[1];
    in_deep();
    return own[0];
}

NOINLINE void in_clock(void) {
    for (uint64_t end = wall_ns() + each_ns; wall_ns() < end;) kept++;
}

int main(int count, char **words) {
    each_ns = (uint64_t)(atof(count > 1 ? words[1] : "0.3") * 1e9);
    static char stack[65536];
    stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    pthread_t other;
    sigaltstack(&own, 0);
    sigaction(SIGUSR1, &action, 0);
    aligned(100);
    interrupted();
    sorted();
    pthread_create(&other, 0, thread, 0);
    pthread_join(other, 0);
    kept += deep(700);
    in_clock();
    return 0;
}
