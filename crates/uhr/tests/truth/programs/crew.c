/* Runs for a while with a thread that always works, two thirds of it in `twice` and the rest in `once`, and with threads
   and children that come and go.
   crew SECONDS */
#include "planted.h"
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static uint64_t end_ns;
static volatile uint64_t kept;

static void work(unsigned steps) { uint64_t x = steps; for (unsigned i = 0; i < steps; i++) STEP(x); kept = x; }
NOINLINE void twice(unsigned steps) { work(2 * steps); __asm__ volatile(""); }
NOINLINE void once(unsigned steps) { work(steps); __asm__ volatile(""); }

static void *steady(void *of) {
    prctl(PR_SET_NAME, "steady");
    while (wall_ns() < end_ns) { unsigned steps = around(200000); twice(steps); once(steps); }
    return of;
}
static void *brief(void *of) { prctl(PR_SET_NAME, "newborn"); work(5000000); return of; }

int main(int argc, char **argv) {
    pthread_t one, other;
    end_ns = wall_ns() + 1000000000ull * (unsigned)(argc > 1 ? atoi(argv[1]) : 3);
    pthread_create(&one, 0, steady, 0);
    printf("it runs\n");
    fflush(stdout);
    while (wall_ns() < end_ns) {
        pthread_create(&other, 0, brief, 0);
        pid_t child = fork();
        if (child == 0) { prctl(PR_SET_NAME, "child"); work(5000000); _exit(0); }
        waitpid(child, 0, 0);
        pthread_join(other, 0);
        usleep(20000);
    }
    pthread_join(one, 0);
    return 0;
}
