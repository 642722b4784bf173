/* An eBPF program that burns in a known line of a known function, when it is asked to run (BPF_PROG_TEST_RUN). */

#define SEC(name) __attribute__((section(name), used))
#define NOINLINE __attribute__((noinline))
typedef unsigned long long u64;
static u64 (*const bpf_ktime_get_ns)(void) = (void *)5;

char LICENSE[] SEC("license") = "GPL";

#ifndef ROUNDS
#define ROUNDS 3000
#endif
#ifndef NAME
#define NAME burn
#endif

static NOINLINE u64 divides(u64 x, u64 y) {
    for (int i = 0; i < ROUNDS; i++) {
        x += 0x123456789;  // LINE cheap
        y += x / (y | 3);  // LINE costly
    }
    return y;
}

SEC("tc") int NAME(void *context) {
    u64 seed = bpf_ktime_get_ns();
    return divides(seed, seed >> 7) & 1; // LINE call
}
