/* Touches memory on 200 huge pages, then on 8,000 small ones, and stays until it was looked at. */
#include "planted.h"
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE (2ul << 20)

NOINLINE void touches_huge(char *at) {
    for (int i = 0; i < 200; i++) *(volatile char *)(at + i * HUGE_PAGE) = 1;
}
NOINLINE void touches_small(char *at) {
    for (int i = 0; i < 8000; i++) *(volatile char *)(at + i * 4096ul) = 1;
}

static char *memory(size_t bytes, int advice) {
    char *all = mmap(0, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *at = (char *)(((uintptr_t)all + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1));
    madvise(at, bytes, advice);
    return at;
}

int main(void) {
    char *huge = memory(200 * HUGE_PAGE, MADV_HUGEPAGE), *small = memory(8000 * 4096, MADV_NOHUGEPAGE), line[256];
    touches_huge(huge);
    touches_small(small);
    unsigned long kb = 0, one;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "AnonHugePages: %lu", &one) == 1) kb += one;
    usleep(700000);
    printf("{\"huge_bytes\": %lu}\n", kb * 1024);
    return 0;
}
