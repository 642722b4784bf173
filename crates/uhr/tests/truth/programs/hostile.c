/* Threads whose names would break a careless reader: separators, markup, control characters. The functions get such
   names too, by objcopy, because no assembler takes them. */
#include "planted.h"
#include <pthread.h>
#include <sys/prctl.h>

static void burn(uint64_t ns) {
    uint64_t end = cpu_ns() + ns, x = 1;
    do for (int i = 0; i < 50000; i++) STEP(x); while (cpu_ns() < end);
}
NOINLINE void semicolon(uint64_t ns) { burn(ns); __asm__ volatile("nop"); }
NOINLINE void markup(uint64_t ns) { burn(ns); __asm__ volatile("nop; nop"); }
NOINLINE void control(uint64_t ns) { burn(ns); __asm__ volatile("nop; nop; nop"); }

static void *in_thread(void *name) {
    prctl(PR_SET_NAME, name);
    for (int i = 0; i < 20; i++) { semicolon(4000000); markup(4000000); control(4000000); }
    return 0;
}

int main(void) {
    char *names[] = {"a;b 7", "<script>", "\033[31mx\ny", ") R 1 2 ("};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, in_thread, names[i]);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
    printf("{\"cpu_ns\": %llu}\n", (unsigned long long)clock_ns(CLOCK_PROCESS_CPUTIME_ID));
    return 0;
}
