/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What the programs stand on, in the words of Linux 5.10: no storage for tasks (5.13 in programs like these), no typed
   pointer to the running task (5.11), no helper for saved registers (5.15) or for the memory of another task (5.18). */
#ifndef UHR_BEFORE_5_18_H
#define UHR_BEFORE_5_18_H

#include "kernel.h"

/* The key is the address of the kernel's own record of the task. Its element goes when the task is freed (free.bpf.c), and
   at the latest when the address is a new task's (on_fork). Elements are made before they are needed: the allocator must not
   be called from everywhere. */
#define KEPT_BY_TASK(map, kept, most)          \
    struct {                                   \
        __uint(type, BPF_MAP_TYPE_HASH);       \
        __uint(max_entries, most);             \
        __type(key, u64);                      \
        __type(value, kept);                   \
    } map SEC(".maps");                        \
    static const kept map##_at_first
#define kept_of(map, task) kept_in(&map, (u64)(task))
#define forget_of(map, task) forget_in(&map, (u64)(task))
#define keep_of(map, task) keep_in(&map, (u64)(task), &map##_at_first)

static __always_inline void *kept_in(void *map, u64 task)
{
    return bpf_map_lookup_elem(map, &task);
}

static __always_inline void forget_in(void *map, u64 task)
{
    bpf_map_delete_elem(map, &task);
}

static __always_inline void *keep_in(void *map, u64 task, const void *at_first)
{
    void *kept = bpf_map_lookup_elem(map, &task);
    if (kept) return kept;
    bpf_map_update_elem(map, &task, at_first, BPF_NOEXIST);
    return bpf_map_lookup_elem(map, &task);
}

static __always_inline struct task_struct *current_task(void)
{
    return (void *)bpf_get_current_task();
}

#define TASK(task, field) BPF_CORE_READ(task, field)

/* Of x86-64: they lie at the top of the task's stack. Kernels that find their own errors (CONFIG_KASAN) have larger
   stacks; what lies there instead would hardly pass for a program's code segment. */
#define REGISTER(registers, name)                                                     \
    ({                                                                                \
        u64 value_ = 0;                                                               \
        bpf_probe_read_kernel(&value_, sizeof value_, &(registers)->name);            \
        value_;                                                                       \
    })

static __always_inline struct pt_regs *saved_registers(struct task_struct *task)
{
    struct pt_regs *top = (void *)((u64)TASK(task, stack) + TASK_STACK_BYTES), *saved = top - 1;
    return (REGISTER(saved, cs) & 0xffff & 3) == 3 ? saved : 0;
}

static __always_inline u64 own_cgroup(u32 level)
{
    return cgroup_of(current_task(), level);
}

/* The memory of another task is read by user space (src/outside.rs). */
static __always_inline long read_user(struct task_struct *other, void *out, u32 bytes, u64 from)
{
    return other ? -1 : bpf_probe_read_user(out, bytes, (void *)from);
}
#define ITERATOR_THAT_READS_USER "iter/task"
enum { HOW_WAITS_ARE_SEEN = UHR_FROM_OUTSIDE };

/* No kernel of that age takes the CPU away from a program. */
static __always_inline void hold_cpu(void) {}
static __always_inline void release_cpu(void) {}

#endif
