// What the tests of perf events record. Each mode says on stdout what it did, by its own clocks.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static uint64_t now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static volatile uint64_t sink;

__attribute__((noinline)) void burn_leaf(void) {
    // gcc leaves the frame pointer out of a leaf that does not ask for it, whatever -fno-omit-frame-pointer says.
    sink = (uint64_t)__builtin_frame_address(0);
    for (int i = 0; i < 200000; i++) sink += i * sink + 1;
}

// Burns so many milliseconds of this thread's CPU time.
__attribute__((noinline)) void burn_middle(uint64_t ms) {
    uint64_t end = now(CLOCK_THREAD_CPUTIME_ID) + ms * 1000000;
    while (now(CLOCK_THREAD_CPUTIME_ID) < end) burn_leaf();
    sink++;
}

__attribute__((noinline)) uint64_t sleep_once(uint64_t ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    uint64_t start = now(CLOCK_MONOTONIC);
    nanosleep(&t, NULL);
    return now(CLOCK_MONOTONIC) - start;
}

static void *burning_thread(void *ms) {
    pthread_setname_np(pthread_self(), "burner");
    printf("burner %ld\n", syscall(SYS_gettid));
    fflush(stdout);
    burn_middle((uintptr_t)ms);
    return NULL;
}

static void *sleeping_thread(void *ms) {
    sleep_once((uintptr_t)ms);
    return NULL;
}

static void threads(int count, void *(*body)(void *), uintptr_t ms) {
    pthread_t made[count];
    for (int i = 0; i < count; i++) pthread_create(&made[i], NULL, body, (void *)ms);
    for (int i = 0; i < count; i++) pthread_join(made[i], NULL);
}

int main(int argc, char **argv) {
    const char *mode = argv[1];
    uint64_t amount = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    if (!strcmp(mode, "burn")) {
        burn_middle(amount);
    } else if (!strcmp(mode, "sleep")) {
        uint64_t slept = 0;
        for (uint64_t i = 0; i < amount; i++) {
            slept += sleep_once(20);
            burn_middle(1);
        }
        printf("slept %lu\n", slept);
    } else if (!strcmp(mode, "threads")) {
        threads(amount, burning_thread, 30);
    } else if (!strcmp(mode, "faults")) {
        char *memory = mmap(NULL, amount * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        madvise(memory, amount * 4096, MADV_NOHUGEPAGE);
        printf("memory %lu\n", (uint64_t)memory);
        for (uint64_t i = 0; i < amount; i++) memory[i * 4096] = 1;
    } else if (!strcmp(mode, "crowd")) {
        // Many sleep, two burn; a line on stdin makes a third burn.
        pthread_t made[64 + 2];
        for (int i = 0; i < 64; i++) pthread_create(&made[i], NULL, sleeping_thread, (void *)(uintptr_t)2500);
        for (int i = 64; i < 66; i++) pthread_create(&made[i], NULL, burning_thread, (void *)amount);
        sleep_once(50);
        printf("ready\n");
        fflush(stdout);
        getchar();
        threads(1, burning_thread, amount);
        for (int i = 0; i < 66; i++) pthread_join(made[i], NULL);
    } else if (!strcmp(mode, "sleepers")) {
        // They sleep until they all end with the process; a line on stdin makes one more thread.
        pthread_t made;
        for (uint64_t i = 0; i < amount; i++) pthread_create(&made, NULL, sleeping_thread, (void *)(uintptr_t)60000);
        sleep_once(50);
        printf("ready\n");
        fflush(stdout);
        getchar();
        threads(1, burning_thread, 100);
        return 0;
    }
    printf("cpu %lu\n", now(CLOCK_PROCESS_CPUTIME_ID));
    return 0;
}
