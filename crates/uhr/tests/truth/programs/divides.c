// One function whose time is in one division: a chain of them, each waiting for the one before, beside additions that
// cost next to nothing. Another function is inlined into it. Prints what it found, so that nothing is optimised away.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static inline __attribute__((always_inline)) uint64_t mixed_in(uint64_t value) {
    value ^= value << 13; // LINE inlined
    value ^= value >> 7;
    return value;
}

__attribute__((noinline)) uint64_t divides(uint64_t value, uint64_t by, uint64_t rounds) {
    uint64_t sum = 0;
    for (uint64_t round = 0; round < rounds; round++) {
        sum += round; // LINE cheap
        value = (value | 0xffffffff00000000u) / by + (value / (by + 2)) / (by + 4); // LINE costly
        sum = mixed_in(sum);
    }
    return value + sum;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

int main(int count, char **words) {
    double end = now() + (count > 1 ? atof(words[1]) : 1.0);
    uint64_t value = 0x123456789abcdef, by = 3 + (uint64_t)(count > 5);
    while (now() < end)
        value += divides(value, by, 100000); // LINE call
    printf("%llu\n", (unsigned long long)value);
    return 0;
}
