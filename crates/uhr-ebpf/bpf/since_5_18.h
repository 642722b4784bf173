/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What the programs stand on, in the words of Linux 5.18 and newer. before_5_18.h has the same in older words. */
#ifndef UHR_SINCE_5_18_H
#define UHR_SINCE_5_18_H

#include "kernel.h"

/* A map of what is kept for each task. The kernel frees it with the task. `most` is what an older kernel has room for. */
#define KEPT_BY_TASK(map, kept, most)                  \
    struct {                                           \
        __uint(type, BPF_MAP_TYPE_TASK_STORAGE);       \
        __uint(map_flags, BPF_F_NO_PREALLOC);          \
        __type(key, int);                              \
        __type(value, kept);                           \
    } map SEC(".maps")
#define kept_of(map, task) bpf_task_storage_get(&map, task, 0, 0)
#define forget_of(map, task) ((void)0)
#define keep_of(map, task) bpf_task_storage_get(&map, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE)

static __always_inline struct task_struct *current_task(void)
{
    return bpf_get_current_task_btf();
}

/* Fields of any task, the running one included. */
#define TASK(task, field) ((task)->field)

/* What the program's registers were when it entered the kernel; 0: there are none. */
static __always_inline struct pt_regs *saved_registers(struct task_struct *task)
{
    return (void *)bpf_task_pt_regs(task);
}
#define REGISTER(registers, name) ((registers)->name)

/* The id of the cgroup on this level that the running task is in. */
static __always_inline u64 own_cgroup(u32 level)
{
    return bpf_get_current_ancestor_cgroup_id(level);
}

/* Reads the memory of the running program, or of another task's, for which a program must be able to sleep. */
static __always_inline long read_user(struct task_struct *other, void *out, u32 bytes, u64 from)
{
    if (other) return bpf_copy_from_user_task(out, bytes, (void *)from, other, 0);
    return bpf_probe_read_user(out, bytes, (void *)from);
}
#define ITERATOR_THAT_READS_USER "iter.s/task"
enum { HOW_WAITS_ARE_SEEN = 0 };

/* Newer kernels (seen: 7.3) can take the CPU away from a thread in the middle of a program that a fork, an exec or a system
   call runs. What must not be torn by the switch holds the CPU. (Meanwhile the kernel leaves the same program out for
   others on that CPU; holding it is no help, for the thread then goes at the end of the hold, still in the program.
   Sampler::left_out counts it.) Older kernels have no such functions, and no need of them. */
extern void bpf_preempt_disable(void) __weak __ksym;
extern void bpf_preempt_enable(void) __weak __ksym;

static __always_inline void hold_cpu(void)
{
    if (bpf_ksym_exists(bpf_preempt_disable)) bpf_preempt_disable();
}

static __always_inline void release_cpu(void)
{
    if (bpf_ksym_exists(bpf_preempt_enable)) bpf_preempt_enable();
}

#endif
