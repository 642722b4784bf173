/* Templates, inlines, lambdas, virtual calls and exceptions, each with a known share. */
#include "planted.h"
#include <functional>
#include <stdexcept>
#include <string>

static volatile uint64_t kept;

namespace planted {

template <typename T, int N> struct Grinder {
    NOINLINE void grind(unsigned n) {
        T x = static_cast<T>(n + N);
        for (unsigned i = 0; i < n; i++) STEP(x); // LINE grind
        kept = x;
    }
};

struct Shape {
    virtual ~Shape() = default;
    virtual void area(unsigned n) = 0;
};
INLINED uint64_t squared(uint64_t x, unsigned n) {
    for (unsigned i = 0; i < n; i++) STEP(x); // LINE squared
    return x;
}
struct Circle final : Shape {
    NOINLINE void area(unsigned n) override { kept = squared(n, n); }
};

NOINLINE void thrower(unsigned n) {
    uint64_t x = n;
    for (unsigned i = 0; i < n; i++) STEP(x); // LINE thrower
    kept = x;
    throw std::runtime_error("planted");
}
NOINLINE void passes_on(unsigned n) { std::string alive(100, 'x'); thrower(n); kept += alive.size(); }
NOINLINE void catcher(unsigned n) {
    try { passes_on(n); } catch (const std::runtime_error &error) { kept += error.what()[0]; }
}

NOINLINE void with_lambda(unsigned n) {
    std::function<void(unsigned)> work = [](unsigned m) {
        uint64_t x = m;
        for (unsigned i = 0; i < m; i++) STEP(x); // LINE lambda
        kept = x;
    };
    work(n);
    kept++;
}

} // namespace planted

#define MEASURED(sum, call) do { uint64_t before = cpu_ns(); call; sum += cpu_ns() - before; } while (0)

int main() {
    uint64_t ground = 0, area = 0, caught = 0, lambda = 0;
    planted::Grinder<uint64_t, 7> grinder;
    planted::Shape *shape = new planted::Circle();
    __asm__ volatile("" : "+r"(shape));
    while (cpu_ns() < 1500000000u) {
        MEASURED(ground, grinder.grind(around(400000)));
        MEASURED(area, shape->area(around(300000)));
        MEASURED(caught, planted::catcher(around(200000)));
        MEASURED(lambda, planted::with_lambda(around(100000)));
    }
    delete shape;
    printf("{\"cpu_ns\": %llu, \"grind\": %llu, \"area\": %llu, \"catcher\": %llu, \"with_lambda\": %llu}\n",
           (unsigned long long)clock_ns(CLOCK_PROCESS_CPUTIME_ID), (unsigned long long)ground,
           (unsigned long long)area, (unsigned long long)caught, (unsigned long long)lambda);
    return 0;
}
