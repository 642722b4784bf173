/* Threads or children that are too short to be sampled one by one. Says what they used for their work (the least), and
   what the kernel charged them for in all (the most): setting a thread up and taking it apart costs too, more so while it
   is profiled, and where it begins and ends is a matter of definition.
   short threads N | short children N */
#include "planted.h"
#include <pthread.h>
#include <sys/mman.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

static uint64_t *used_by_now;

NOINLINE void brief(uint64_t ns) {
    uint64_t start = cpu_ns(), x = 1;
    do for (int i = 0; i < 20000; i++) STEP(x); while (cpu_ns() < start + ns);
    *used_by_now += cpu_ns() - start;
}
static void *thread(void *of) { brief(300000); return of; }
static uint64_t used(int who) {
    struct rusage u;
    getrusage(who, &u);
    return ((uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000u + (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec)) * 1000u;
}

int main(int argc, char **argv) {
    int children = argc > 1 && !strcmp(argv[1], "children");
    int count = argc > 2 ? atoi(argv[2]) : 200;
    used_by_now = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < count; i++) {
        if (children) {
            pid_t child = fork();
            if (child == 0) { brief(200000); _exit(0); }
            waitpid(child, 0, 0);
        } else {
            pthread_t one;
            pthread_create(&one, 0, thread, 0);
            pthread_join(one, 0);
        }
    }
    printf("{\"least_ns\": %llu, \"most_ns\": %llu}\n", (unsigned long long)(*used_by_now + cpu_ns()),
           (unsigned long long)(used(RUSAGE_SELF) + used(RUSAGE_CHILDREN)));
    return 0;
}
