/* Threads that spend their time in one system call each, on a CPU or waiting in it, and one that makes none. */
#include "planted.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/prctl.h>

static char block[1 << 20];
static int ends[2];
static volatile uint64_t kept;

/* Nearly all of it is in the kernel: 1 MiB of zeros takes some thirty microseconds. */
NOINLINE uint64_t reads(void) {
    int zero = open("/dev/zero", O_RDONLY);
    uint64_t start = cpu_ns();
    while (cpu_ns() < start + 700000000u) for (int i = 0; i < 10; i++) kept += (uint64_t)read(zero, block, sizeof block);
    return cpu_ns() - start;
}
/* The call itself does next to nothing. */
NOINLINE uint64_t asks(void) {
    uint64_t start = cpu_ns();
    while (cpu_ns() < start + 500000000u) for (int i = 0; i < 5000; i++) kept += (uint64_t)syscall(SYS_getppid);
    return cpu_ns() - start;
}
NOINLINE uint64_t computes(void) {
    uint64_t start = cpu_ns(), x = 1;
    while (cpu_ns() < start + 300000000u) for (int i = 0; i < 500000; i++) STEP(x);
    return cpu_ns() - start;
}
static uint64_t away(uint64_t wall, uint64_t cpu) { return wall_ns() - wall - (cpu_ns() - cpu); }
NOINLINE uint64_t naps(void) {
    uint64_t wall = wall_ns(), cpu = cpu_ns();
    for (int i = 0; i < 100; i++) usleep(4000);
    return away(wall, cpu);
}
NOINLINE uint64_t listens(void) {
    uint64_t wall = wall_ns(), cpu = cpu_ns();
    char byte;
    if (read(ends[0], &byte, 1) != 1) exit(1);
    return away(wall, cpu);
}

struct job { const char *name; uint64_t (*work)(void); uint64_t ns; pthread_t id; };
static void *run(void *of) { struct job *job = of; prctl(PR_SET_NAME, job->name); job->ns = job->work(); return 0; }

int main(void) {
    struct job jobs[] = {{.name = "reads", .work = reads}, {.name = "asks", .work = asks}, {.name = "computes", .work = computes},
                         {.name = "naps", .work = naps}, {.name = "listens", .work = listens}};
    unsigned count = sizeof jobs / sizeof *jobs;
    if (pipe(ends)) return 1;
    for (unsigned i = 0; i < count; i++) pthread_create(&jobs[i].id, 0, run, &jobs[i]);
    for (unsigned i = 0; i + 1 < count; i++) pthread_join(jobs[i].id, 0);
    if (write(ends[1], "x", 1) != 1) return 1;
    pthread_join(jobs[count - 1].id, 0);
    printf("{");
    for (unsigned i = 0; i < count; i++) printf("\"%s\": %llu, ", jobs[i].name, (unsigned long long)jobs[i].ns);
    printf("\"cpu_ns\": %llu}\n", (unsigned long long)clock_ns(CLOCK_PROCESS_CPUTIME_ID));
    return 0;
}
