/* Touches a known number of pages of each kind of memory, and says how many faults the kernel counted for it.
   faults FILE PAGES STEPS: so many pages of each kind, with so much work between two of them. */
#include "planted.h"
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { PAGE = 4096 };
static long pages, steps;

static uint64_t faults(void) { struct rusage u; getrusage(RUSAGE_SELF, &u); return (uint64_t)(u.ru_minflt + u.ru_majflt); }
static void touch(volatile char *memory) {
    uint64_t x = 1;
    for (long i = 0; i < pages; i++) {
        memory[i * PAGE] = 1;
        for (long k = 0; k < steps; k++) STEP(x);
    }
}

NOINLINE void touches_anonymous(volatile char *memory) { touch(memory); __asm__ volatile(""); }
NOINLINE void touches_heap(volatile char *memory) { touch(memory); __asm__ volatile(""); }
NOINLINE void touches_file(volatile char *memory) { touch(memory); __asm__ volatile(""); }

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    pages = atol(argv[2]);
    steps = atol(argv[3]);
    size_t bytes = (size_t)pages * PAGE;
    FILE *file = fopen(argv[1], "w+");
    if (!file || ftruncate(fileno(file), (off_t)bytes)) return 1;
    char block[PAGE];
    memset(block, 7, sizeof block);
    for (int i = 0; i < pages; i++) if (pwrite(fileno(file), block, PAGE, (off_t)i * PAGE) != PAGE) return 1;
    char *anonymous = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *mapped = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fileno(file), 0);
    char *heap = sbrk((intptr_t)bytes + PAGE);
    madvise(anonymous, bytes, MADV_NOHUGEPAGE);
    heap = (char *)(((uintptr_t)heap + PAGE - 1) & ~(uintptr_t)(PAGE - 1));
    madvise(heap, bytes, MADV_NOHUGEPAGE);
    uint64_t start = faults();
    touches_anonymous(anonymous);
    uint64_t of_anonymous = faults();
    touches_heap(heap);
    uint64_t of_heap = faults();
    touches_file(mapped);
    uint64_t of_file = faults();
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    /* The peak stands long enough to be polled. */
    usleep(400000);
    printf("{\"anonymous\": %llu, \"heap\": %llu, \"file\": %llu, \"all\": %llu, \"peak_bytes\": %llu}\n",
           (unsigned long long)(of_anonymous - start), (unsigned long long)(of_heap - of_anonymous),
           (unsigned long long)(of_file - of_heap), (unsigned long long)faults(),
           (unsigned long long)usage.ru_maxrss * 1024);
    return 0;
}
