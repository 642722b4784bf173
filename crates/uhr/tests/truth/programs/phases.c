/* Changes its hot function every 100 ms and logs when, on the clock of recordings. Ignores SIGTERM if told so.
   phases SECONDS [ignore-term] [exit-slowly] */
#include "planted.h"
#include <signal.h>
#include <string.h>

static volatile uint64_t kept;
#define PHASE(k) NOINLINE void phase_##k(uint64_t end) { uint64_t x = 1; do for (int i = 0; i < 20000; i++) STEP(x); while (wall_ns() < end); kept = x + k; }
PHASE(0) PHASE(1) PHASE(2) PHASE(3) PHASE(4) PHASE(5) PHASE(6) PHASE(7) PHASE(8) PHASE(9)

static void say_and_exit(int signal) {
    (void)signal;
    static const char text[] = "{\"ended\": \"by signal\"}\n";
    if (write(1, text, sizeof text - 1) < 0) _exit(9);
    _exit(7);
}

int main(int argc, char **argv) {
    void (*phases[])(uint64_t) = {phase_0, phase_1, phase_2, phase_3, phase_4, phase_5, phase_6, phase_7, phase_8, phase_9};
    for (int i = 2; i < argc; i++) {
        if (!strcmp(argv[i], "ignore-term")) signal(SIGTERM, SIG_IGN);
        if (!strcmp(argv[i], "ignore-int")) signal(SIGINT, SIG_IGN);
        if (!strcmp(argv[i], "exit-on-int")) signal(SIGINT, say_and_exit);
    }
    uint64_t now = wall_ns(), end = now + (uint64_t)(atof(argc > 1 ? argv[1] : "2") * 1e9);
    for (unsigned k = 0; now < end; k = (k + 1) % 10, now = wall_ns()) {
        printf("{\"phase\": %u, \"from_ns\": %llu}\n", k, (unsigned long long)now);
        fflush(stdout);
        phases[k](now + 100000000u);
    }
    printf("{\"ended\": \"by itself\"}\n");
    return 0;
}
