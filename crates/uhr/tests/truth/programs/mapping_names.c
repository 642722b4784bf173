/* Touches a known number of pages of mappings with all kinds of names, and says how many faults the kernel counted for each.
   mapping_names FILE PAGES [COUNT]: so many pages of each, or of COUNT memory files. */
#include "planted.h"
#include <fcntl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

enum { PAGE = 4096 };
static long pages;
static const char *comma = "";

static uint64_t faults(void) { struct rusage u; getrusage(RUSAGE_SELF, &u); return (uint64_t)(u.ru_minflt + u.ru_majflt); }

/* Touches memory, and tells its faults under the name that it should have. */
NOINLINE static void touches(const char *name, volatile char *memory) {
    if (memory == MAP_FAILED) exit(3);
    madvise((void *)memory, (size_t)pages * PAGE, MADV_NOHUGEPAGE);
    uint64_t start = faults();
    for (long i = 0; i < pages; i++) memory[i * PAGE] = 1;
    printf("%s\"%s\": %llu", comma, name, (unsigned long long)(faults() - start));
    comma = ", ";
}

static void *map(int flags, int fd) { return mmap(0, (size_t)pages * PAGE, PROT_READ | PROT_WRITE, flags, fd, 0); }
static int sized(int fd) { return ftruncate(fd, (off_t)pages * PAGE) ? -1 : fd; }
static int names(void *memory, const char *name) {
    return !prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, memory, (size_t)pages * PAGE, name);
}

static void all_kinds(const char *path) {
    touches(path, map(MAP_SHARED, sized(open(path, O_RDWR | O_CREAT, 0600))));
    touches("/memfd:frames", map(MAP_SHARED, sized(memfd_create("frames", 0))));
    char name[64];
    snprintf(name, sizeof name, "/uhr-truth-%d", getpid());
    int fd = shm_open(name, O_RDWR | O_CREAT, 0600);
    char in_dev[80];
    snprintf(in_dev, sizeof in_dev, "/dev/shm%s", name);
    /* A very small system may have no such folder. */
    if (fd >= 0) touches(in_dev, map(MAP_SHARED, sized(fd)));
    shm_unlink(name);
    int id = shmget(IPC_PRIVATE, (size_t)pages * PAGE, 0600);
    void *attached = shmat(id, 0, 0);
    shmctl(id, IPC_RMID, 0);
    touches("/SYSV00000000", attached);
    touches("shared", map(MAP_SHARED | MAP_ANONYMOUS, -1));
    touches("anonymous", map(MAP_PRIVATE | MAP_ANONYMOUS, -1));
    /* Two names in one mapping, as allocators give them; the kernel makes two of it. */
    char *both = mmap(0, 2 * (size_t)pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!names(both, "scudo:primary")) return;
    names(both + pages * PAGE, " glibc: malloc arena");
    touches("[anon:scudo:primary]", both);
    touches("[anon: glibc: malloc arena]", both + pages * PAGE);
    /* Named only after its first faults. */
    char *late = map(MAP_PRIVATE | MAP_ANONYMOUS, -1);
    touches("late", late);
    names(late, "jit-cache");
    usleep(1200000);
    madvise(late, (size_t)pages * PAGE, MADV_DONTNEED);
    touches("[anon:jit-cache]", late);
    void *shared = map(MAP_SHARED | MAP_ANONYMOUS, -1);
    if (names(shared, "ring")) touches("[anon_shmem:ring]", shared);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    pages = atol(argv[2]);
    printf("{");
    if (argc == 3) all_kinds(argv[1]);
    for (long i = 0; argc > 3 && i < atol(argv[3]); i++) {
        char name[32];
        snprintf(name, sizeof name, "block-%ld", i);
        int fd = sized(memfd_create(name, 0));
        char listed[48];
        snprintf(listed, sizeof listed, "/memfd:%s", name);
        touches(listed, map(MAP_SHARED, fd));
        close(fd);
    }
    printf("}\n");
    return 0;
}
