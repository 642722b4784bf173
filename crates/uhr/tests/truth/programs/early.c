/* Works before main, in main, and after it has executed itself again in the same process. */
#include "planted.h"

static uint64_t used;

static void burn(uint64_t ns) {
    uint64_t start = cpu_ns(), x = 1;
    do for (int i = 0; i < 100000; i++) STEP(x); while (cpu_ns() < start + ns);
    used = cpu_ns() - start;
}
NOINLINE void before_main(void) { burn(150000000); __asm__ volatile(""); }
NOINLINE void in_main(void) { burn(100000000); __asm__ volatile(""); }
NOINLINE void when_again(void) { burn(200000000); __asm__ volatile(""); }

__attribute__((constructor)) static void early(void) { if (!getenv("AGAIN")) before_main(); }

int main(int argc, char **argv) {
    (void)argc;
    if (getenv("AGAIN")) {
        when_again();
        printf("{\"pid\": %d, \"before_main\": %s, \"in_main\": %s, \"when_again\": %llu}\n", getpid(), argv[1], argv[2],
               (unsigned long long)used);
        return 0;
    }
    char before[24], in[24];
    snprintf(before, sizeof before, "%llu", (unsigned long long)used);
    in_main();
    snprintf(in, sizeof in, "%llu", (unsigned long long)used);
    setenv("AGAIN", "1", 1);
    execl("/proc/self/exe", argv[0], before, in, (char *)0);
    return 1;
}
