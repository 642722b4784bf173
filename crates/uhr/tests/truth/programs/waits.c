/* Threads that sleep, wait for a lock, for a pipe and for a condition. Each prints how long it did not run. */
#include "planted.h"
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, ready_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ready = PTHREAD_COND_INITIALIZER;
static int is_ready, ends[2];
static volatile int kept;

static void nap(long ms) { struct timespec t = {ms / 1000, ms % 1000 * 1000000}; nanosleep(&t, 0); }

NOINLINE void naps_here(void) { for (int i = 0; i < 6; i++) { nap(130); kept++; } }
NOINLINE void waits_for_lock(void) { pthread_mutex_lock(&lock); kept++; pthread_mutex_unlock(&lock); }
NOINLINE void waits_for_condition(void) {
    pthread_mutex_lock(&ready_lock);
    while (!is_ready) pthread_cond_wait(&ready, &ready_lock);
    pthread_mutex_unlock(&ready_lock);
    kept++;
}
NOINLINE void waits_for_pipe(void) { char c; kept += (int)read(ends[0], &c, 1); }
NOINLINE void waits_for_child(void) {
    pid_t child = fork();
    if (child == 0) { prctl(PR_SET_NAME, "child"); nap(600); _exit(0); }
    int status;
    waitpid(child, &status, 0);
    kept++;
}

struct job { const char *name; void (*wait)(void); uint64_t wall, cpu, delay; pthread_t thread; };

static void *work(void *of) {
    struct job *job = of;
    pthread_setname_np(pthread_self(), job->name);
    uint64_t wall = wall_ns(), cpu = cpu_ns(), delay = run_delay_ns();
    job->wait();
    job->cpu = cpu_ns() - cpu; job->wall = wall_ns() - wall; job->delay = run_delay_ns() - delay;
    return 0;
}

int main(void) {
    struct job jobs[] = {{.name = "sleeper", .wait = naps_here}, {.name = "locker", .wait = waits_for_lock},
                         {.name = "conditioner", .wait = waits_for_condition}, {.name = "piper", .wait = waits_for_pipe},
                         {.name = "parent", .wait = waits_for_child}};
    unsigned count = sizeof jobs / sizeof *jobs;
    if (pipe(ends)) return 1;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < count; i++) pthread_create(&jobs[i].thread, 0, work, &jobs[i]);
    nap(700);
    pthread_mutex_unlock(&lock);
    pthread_mutex_lock(&ready_lock); is_ready = 1; pthread_cond_signal(&ready); pthread_mutex_unlock(&ready_lock);
    nap(200);
    if (write(ends[1], "x", 1) != 1) return 1;
    for (unsigned i = 0; i < count; i++) pthread_join(jobs[i].thread, 0);
    printf("{");
    for (unsigned i = 0; i < count; i++)
        printf("%s\"%s\": {\"least_ns\": %llu, \"most_ns\": %llu}", i ? ", " : "", jobs[i].name,
               (unsigned long long)(jobs[i].wall - jobs[i].cpu - jobs[i].delay),
               (unsigned long long)(jobs[i].wall - jobs[i].cpu));
    printf("}\n");
    return 0;
}
