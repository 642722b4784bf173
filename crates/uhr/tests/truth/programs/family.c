/* A program with named threads, a child that renames itself, and a child that executes other programs in turn. */
#include "planted.h"
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/wait.h>

NOINLINE void burn(uint64_t ns) {
    uint64_t end = cpu_ns() + ns, x = 1;
    do for (int i = 0; i < 500000; i++) STEP(x); while (cpu_ns() < end);
}
static void *named(void *name) { pthread_setname_np(pthread_self(), name); burn(250000000); return 0; }

int main(int argc, char **argv) {
    if (argc > 1) { burn(200000000); return 0; }
    pthread_t one, two;
    pthread_create(&one, 0, named, "alpha worker");
    pthread_create(&two, 0, named, "beta worker");
    pid_t renamed = fork();
    if (renamed == 0) { prctl(PR_SET_NAME, "renamed child"); burn(200000000); _exit(0); }
    pid_t chain = fork();
    if (chain == 0) { burn(150000000); execl("/bin/sh", "sh", "-c", "exec \"$0\" again", argv[0], (char *)0); _exit(1); }
    waitpid(renamed, 0, 0);
    waitpid(chain, 0, 0);
    pthread_join(one, 0);
    pthread_join(two, 0);
    printf("{\"pid\": %d, \"renamed\": %d, \"chain\": %d}\n", getpid(), renamed, chain);
    return 0;
}
