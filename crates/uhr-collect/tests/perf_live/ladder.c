// What the tests of page faults and switches record. Each mode does what its name says and ends by itself.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// A byte goes to and fro between two processes.
static void ping_pong(long rounds) {
    int there[2], back[2];
    char byte = 0;
    if (pipe(there) || pipe(back)) exit(1);
    int is_child = fork() == 0, in = is_child ? there[0] : back[0], out = is_child ? back[1] : there[1];
    for (long i = 0; i < rounds; i++) {
        if (!is_child && write(out, &byte, 1) != 1) exit(1);
        if (read(in, &byte, 1) != 1) exit(1);
        if (is_child && write(out, &byte, 1) != 1) exit(1);
    }
    if (is_child) exit(0);
    wait(NULL);
}

static void nap(long count) {
    struct timespec two_ms = {0, 2000000};
    for (long i = 0; i < count; i++) nanosleep(&two_ms, NULL);
}

static void touch(long pages) {
    char *memory = mmap(NULL, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(memory, pages * 4096, MADV_NOHUGEPAGE);
    for (long i = 0; i < pages; i++) memory[i * 4096] = 1;
}

static void busy(long seconds) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long end = now.tv_sec + seconds;
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while (now.tv_sec <= end);
}

int main(int argc, char **argv) {
    if (argc < 3) return 1;
    long amount = atol(argv[2]);
    if (!strcmp(argv[1], "ping-pong")) ping_pong(amount);
    if (!strcmp(argv[1], "nap")) nap(amount);
    if (!strcmp(argv[1], "touch")) touch(amount);
    if (!strcmp(argv[1], "busy")) busy(amount);
    return 0;
}
