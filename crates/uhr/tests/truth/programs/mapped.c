/* Generated code that spins in a thread, with a perf map by the program's own pid; without one if that is asked for. */
#include "planted.h"
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

static void *code;
static void *spin(void *unused) { ((void (*)(void))code)(); return unused; }

int main(int argc, char **argv) {
    (void)argv;
    /* push %rbp; mov %rsp,%rbp; 1: inc %eax; jmp 1b */
    static const unsigned char bytes[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xc0, 0xeb, 0xfc};
    code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(code, bytes, sizeof bytes);
    if (argc == 1) {
        char path[64];
        snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
        FILE *map = fopen(path, "w");
        if (!map) return 1;
        fprintf(map, "%lx 10 generated_spin\n", (unsigned long)code);
        fclose(map);
    }
    pthread_t thread;
    pthread_create(&thread, 0, spin, 0);
    puts("up");
    fflush(stdout);
    sleep(60);
    _exit(0);
}
