/* Burns known shares of its time in named functions at known lines. Prints what it burned, measured by itself.
   shares SECONDS */
#include "planted.h"

static volatile uint64_t kept;

NOINLINE void half(unsigned n) {
    FRAME();
    uint64_t x = n;
    for (unsigned i = 0; i < n; i++) STEP(x); // LINE half
    kept = x;
}

INLINED uint64_t mixed_in(uint64_t x, unsigned n) {
    for (unsigned i = 0; i < n; i++) STEP(x); // LINE mixed_in
    return x;
}

NOINLINE void fifth(unsigned n) {
    FRAME();
    uint64_t x = mixed_in(n, n); // LINE fifth
    kept = x;
}

NOINLINE void inner(unsigned n) {
    FRAME();
    uint64_t x = n;
    for (unsigned i = 0; i < n; i++) STEP(x); // LINE inner_first
    kept = x;
    for (unsigned i = 0; i < n; i++) STEP(x); // LINE inner_second
    kept = x;
}
NOINLINE void middle(unsigned n) { inner(n / 2); kept++; }
NOINLINE void outer(unsigned n) { middle(n); kept++; }

#define MEASURED(sum, call) do { uint64_t before = cpu_ns(); call; sum += cpu_ns() - before; } while (0)

int main(int argc, char **argv) {
    uint64_t end = (uint64_t)(atof(argc > 1 ? argv[1] : "1.5") * 1e9);
    uint64_t of_half = 0, of_fifth = 0, of_outer = 0;
    while (cpu_ns() < end) {
        MEASURED(of_half, half(around(500000)));
        MEASURED(of_outer, outer(around(300000)));
        MEASURED(of_fifth, fifth(around(200000)));
    }
    printf("{\"cpu_ns\": %llu, \"half\": %llu, \"outer\": %llu, \"fifth\": %llu}\n",
           (unsigned long long)clock_ns(CLOCK_PROCESS_CPUTIME_ID), (unsigned long long)of_half,
           (unsigned long long)of_outer, (unsigned long long)of_fifth);
    return 0;
}
