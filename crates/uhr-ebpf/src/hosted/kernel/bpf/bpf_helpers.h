/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Stands in for libbpf's header of this name where the programs are compiled for the machine that tests them: the helpers of
   the kernel become ordinary functions (walker.c). One that no test needs is declared and never defined. */
#ifndef UHR_HOSTED_HELPERS_H
#define UHR_HOSTED_HELPERS_H

#define SEC(name)
#define __uint(name, value) int (*name)[value]
#define __type(name, of) typeof(of) *name
#define __array(name, of) typeof(of) *name[]
#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#define __noinline __attribute__((noinline))
#define __weak __attribute__((weak))
#define __ksym
#define barrier_var(var) asm volatile("" : "+r"(var))
#define bpf_ksym_exists(symbol) (!!(symbol))
#ifndef offsetof
#define offsetof(type, member) __builtin_offsetof(type, member)
#endif

void *bpf_map_lookup_elem(void *map, void *key);
long bpf_map_update_elem(void *map, void *key, void *value, u64 flags);
long bpf_map_delete_elem(void *map, void *key);
void *bpf_task_storage_get(void *map, void *task, void *value, u64 flags);
long bpf_probe_read_user(void *to, u32 bytes, void *from);
long bpf_probe_read_kernel(void *to, u32 bytes, void *from);
long bpf_copy_from_user_task(void *to, u32 bytes, void *from, void *task, u64 flags);
long bpf_loop(u32 times, void *each, void *context, u64 flags);
long bpf_ringbuf_output(void *ring, void *event, u64 bytes, u64 flags);
u64 bpf_ringbuf_query(void *ring, u64 what);
u64 bpf_ktime_get_ns(void);
u32 bpf_get_smp_processor_id(void);
u64 bpf_get_current_ancestor_cgroup_id(int level);
long bpf_task_pt_regs(void *task);
void *bpf_get_current_task_btf(void);

#endif
