/* Two functions that take turns for some seconds, three times as long in one as in the other. */
#include "planted.h"

static volatile uint64_t kept;
NOINLINE uint64_t most(uint64_t until) {
    uint64_t start = cpu_ns(), x = 1;
    while (cpu_ns() < start + until) for (int i = 0; i < 2000; i++) STEP(x);
    kept += x;
    return cpu_ns() - start;
}
NOINLINE uint64_t some(uint64_t until) {
    uint64_t start = cpu_ns(), x = 1;
    while (cpu_ns() < start + until) for (int i = 0; i < 2000; i++) STEP(x);
    kept += x;
    return cpu_ns() - start;
}

int main(void) {
    uint64_t in_most = 0, in_some = 0;
    for (int i = 0; i < 1500; i++) {
        in_most += most(2250000);
        in_some += some(750000);
    }
    printf("{\"most\": %llu, \"some\": %llu, \"cpu_ns\": %llu}\n", (unsigned long long)in_most, (unsigned long long)in_some,
           (unsigned long long)clock_ns(CLOCK_PROCESS_CPUTIME_ID));
    return 0;
}
