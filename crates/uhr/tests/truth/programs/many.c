/* Twenty functions of different sizes, for how often the truth lies in the printed intervals. */
#include "planted.h"

static volatile uint64_t kept;
#define FUNCTION(k) NOINLINE void part_##k(unsigned n) { uint64_t x = n; for (unsigned i = 0; i < n; i++) STEP(x); kept = x + K(k); }
#define K(k) (1##k - 100)
#define EACH(X) X(01) X(02) X(03) X(04) X(05) X(06) X(07) X(08) X(09) X(10) \
                X(11) X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19) X(20)
EACH(FUNCTION)

int main(void) {
    static uint64_t sum[21];
    while (cpu_ns() < 2500000000u) {
#define CALL(k) { uint64_t before = cpu_ns(); part_##k(around(20000 * K(k))); sum[K(k)] += cpu_ns() - before; }
        EACH(CALL)
    }
    printf("{");
#define SAY(k) printf("\"part_" #k "\": %llu, ", (unsigned long long)sum[K(k)]);
    EACH(SAY)
    printf("\"cpu_ns\": %llu}\n", (unsigned long long)clock_ns(CLOCK_PROCESS_CPUTIME_ID));
    return 0;
}
