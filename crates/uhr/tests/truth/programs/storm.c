/* Touches 64 MiB of new memory, and a file that was dropped from memory: minor and major page faults.
   storm FILE */
#include "planted.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { PAGE = 4096, PAGES = 16384, OF_FILE = 4096 };
static volatile char kept;

struct faults { long minor, major; };
static struct faults faults(void) { struct rusage u; getrusage(RUSAGE_SELF, &u); return (struct faults){u.ru_minflt, u.ru_majflt}; }

NOINLINE void storms(char *memory) { for (int i = 0; i < PAGES; i++) memory[i * PAGE] = 1; }
NOINLINE void reads_back(const char *file) { for (int i = 0; i < OF_FILE; i++) kept += file[i * PAGE]; }

int main(int argc, char **argv) {
    static char block[PAGE];
    int file = open(argc > 1 ? argv[1] : "pages", O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (int i = 0; i < OF_FILE; i++) { block[0] = (char)i; if (write(file, block, PAGE) != PAGE) return 1; }
    fsync(file);
    char *memory = mmap(0, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(memory, (size_t)PAGES * PAGE, MADV_NOHUGEPAGE);
    struct faults start = faults();
    storms(memory);
    struct faults touched = faults();
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    char *mapped = mmap(0, (size_t)OF_FILE * PAGE, PROT_READ, MAP_SHARED, file, 0);
    madvise(mapped, (size_t)OF_FILE * PAGE, MADV_RANDOM);
    struct faults before = faults();
    reads_back(mapped);
    struct faults after = faults();
    printf("{\"storm\": %ld, \"major\": %ld, \"all\": %ld}\n", touched.minor - start.minor, after.major - before.major,
           after.minor + after.major);
    return 0;
}
