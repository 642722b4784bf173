/* Recursion as deep as its argument says, with all time at the bottom. recursion DEPTH [SECONDS] */
#include "planted.h"

NOINLINE uint64_t at_the_bottom(uint64_t ns) {
    uint64_t end = cpu_ns() + ns, x = 1;
    do for (int i = 0; i < 20000; i++) STEP(x); while (cpu_ns() < end);
    return x;
}

NOINLINE uint64_t down(long left, uint64_t ns) {
    volatile long own = left;
    return (left ? down(left - 1, ns) : at_the_bottom(ns)) + own;
}

int main(int count, char **words) {
    return down(atol(words[1]), (uint64_t)(atof(count > 2 ? words[2] : "0.5") * 1e9)) == 42;
}
