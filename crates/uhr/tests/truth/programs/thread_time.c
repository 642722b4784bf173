/* Threads that compete for the CPUs, sleep, and hand a byte to and fro. At its end each reads what the scheduler has
   counted of it (/proc/thread-self/schedstat): time on a CPU, time able to run, and how often it got a CPU. */
#include "planted.h"
#include <pthread.h>
#include <sys/prctl.h>

static int to[2], fro[2];
static uint64_t end_ns;

static void spin(uint64_t ns) {
    uint64_t end = cpu_ns() + ns, x = 1;
    do for (int i = 0; i < 20000; i++) STEP(x); while (cpu_ns() < end);
}
static void burn(void) { while (wall_ns() < end_ns) spin(1000000); }
static void doze(void) { while (wall_ns() < end_ns) { spin(300000); usleep(1000); } }
static void serve(void) {
    char byte = 1;
    while (wall_ns() < end_ns) if (write(to[1], &byte, 1) != 1 || read(fro[0], &byte, 1) != 1) return;
    close(to[1]);
}
static void answer(void) {
    char byte;
    while (read(to[0], &byte, 1) == 1) if (write(fro[1], &byte, 1) != 1) return;
}

struct job { const char *name; void (*work)(void); unsigned long long life, on, delay, times; pthread_t id; };

static void *run(void *of) {
    struct job *job = of;
    prctl(PR_SET_NAME, job->name);
    uint64_t start = wall_ns();
    job->work();
    FILE *file = fopen("/proc/thread-self/schedstat", "r");
    if (!file || fscanf(file, "%llu %llu %llu", &job->on, &job->delay, &job->times) != 3) exit(1);
    job->life = wall_ns() - start;
    return 0;
}

int main(void) {
    struct job jobs[] = {{.name = "burner-1", .work = burn}, {.name = "burner-2", .work = burn}, {.name = "burner-3", .work = burn},
                         {.name = "dozer", .work = doze}, {.name = "server", .work = serve}, {.name = "answerer", .work = answer}};
    unsigned count = sizeof jobs / sizeof *jobs;
    if (pipe(to) || pipe(fro)) return 1;
    end_ns = wall_ns() + 1500000000u;
    for (unsigned i = 0; i < count; i++) pthread_create(&jobs[i].id, 0, run, &jobs[i]);
    for (unsigned i = 0; i < count; i++) pthread_join(jobs[i].id, 0);
    printf("{");
    for (unsigned i = 0; i < count; i++)
        printf("%s\"%s\": {\"life_ns\": %llu, \"on_ns\": %llu, \"delay_ns\": %llu, \"times\": %llu}", i ? ", " : "",
               jobs[i].name, jobs[i].life, jobs[i].on, jobs[i].delay, jobs[i].times);
    printf("}\n");
    return 0;
}
