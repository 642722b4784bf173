/* Two functions that take turns for some seconds, three times as long in one as in the other. Their turns vary, so that no
   clock keeps step with them. */
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
    for (uint64_t i = 0, random = 1; i < 1500; i++) {
        STEP(random);
        uint64_t turn = 250000 + (random >> 40) % 1000000;
        in_most += most(3 * turn);
        in_some += some(turn);
    }
    printf("{\"most\": %llu, \"some\": %llu, \"cpu_ns\": %llu}\n", (unsigned long long)in_most, (unsigned long long)in_some,
           (unsigned long long)clock_ns(CLOCK_PROCESS_CPUTIME_ID));
    return 0;
}
