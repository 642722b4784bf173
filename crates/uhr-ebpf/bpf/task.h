/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Who a task is, whether it is a target, and why it waits. */
#ifndef UHR_TASK_H
#define UHR_TASK_H

#include "state.h"

/* The kernel allows 32 namespaces inside one another; nobody has been seen to use more than three. */
#define NAMESPACE_LEVELS 8

/* The number of a pid in the namespace that uhr runs in; 0 if it has none there. */
static __always_inline u32 number_in_namespace(struct pid *pid)
{
    if (!pid) return 0;
    void *numbers = (void *)pid + bpf_core_field_offset(struct pid, numbers);
    u32 deepest = BPF_CORE_READ(pid, level);
    for (u32 level = 0; level < NAMESPACE_LEVELS && level <= deepest; level++) {
        struct upid *own = numbers + level * bpf_core_type_size(struct upid);
        if (BPF_CORE_READ(own, ns, ns.inum) == settings.pid_namespace) return BPF_CORE_READ(own, nr);
    }
    return 0;
}

static __always_inline struct uhr_task who(struct task_struct *task)
{
    struct uhr_task found = {.pid = TASK(task, tgid), .tid = TASK(task, pid)};
    if (settings.pid_namespace) {
        found.tid = number_in_namespace(BPF_CORE_READ(task, thread_pid));
        found.pid = number_in_namespace(BPF_CORE_READ(task, signal, pids[PIDTYPE_TGID]));
    }
    return found;
}

static __always_inline u32 state_of(struct task_struct *task)
{
    if (bpf_core_field_exists(task->__state)) return task->__state;
    struct task_struct___state *old = (void *)task;
    return BPF_CORE_READ(old, state);
}

/* Whether the running task is in the cgroup that is recorded. */
static __always_inline bool is_in_cgroup(void)
{
    return own_cgroup(settings.cgroup_level) == settings.cgroup;
}

/* Whether another task is. */
static __always_inline bool is_task_in_cgroup(struct task_struct *task)
{
    return cgroup_of(task, settings.cgroup_level) == settings.cgroup;
}

static __always_inline void is_inside(struct thread *thread, bool inside)
{
    thread->is_outside = !inside;
    thread->was_inside |= inside;
}

static __always_inline struct thread *thread_of(struct task_struct *task)
{
    return kept_of(threads, task);
}

/* Makes a task a target, if it is none yet. */
static __always_inline struct thread *new_thread(struct task_struct *task)
{
    struct thread *thread = keep_of(threads, task);
    if (!thread) {
        COUNT(no_storage);
        return 0;
    }
    if (!thread->task.tid) {
        thread->task = who(task);
        thread->executed_ns = TASK(task, se.sum_exec_runtime);
        is_inside(thread, settings.scope != UHR_CGROUP || is_task_in_cgroup(task));
    }
    return thread;
}

/* What is kept of a task, if it is a target; where all are, it becomes one. */
static __always_inline struct thread *target_of(struct task_struct *task)
{
    return settings.scope == UHR_MARKED ? thread_of(task) : new_thread(task);
}

/* Who ended its wait, or made it; and who had ended that one's (`own`, if it is a target) last wait, and so on. */
static __always_inline void woken_by(struct thread *thread, struct uhr_task waker, struct thread *own)
{
    thread->wakers[0] = waker;
    for (u32 hop = 0; hop < UHR_HOPS; hop++) thread->wakers[hop + 1] = own ? own->wakers[hop] : (struct uhr_task){};
}

/* What the file is that a thread waits to read or write. At every such switch: pointers that the verifier knows are
   followed directly, a read of memory costs 20 ns. */
static __always_inline u8 file_kind(struct task_struct *task, u32 descriptor)
{
    struct files_struct *files = task->files;
    struct fdtable *table = files ? files->fdt : 0;
    if (!table || descriptor >= table->max_fds) return UHR_FILE_UNKNOWN;
    struct file **all = table->fd, *file = 0;
    if (bpf_probe_read_kernel(&file, sizeof file, all + descriptor) || !file) return UHR_FILE_UNKNOWN;
    switch (BPF_CORE_READ(file, f_inode, i_mode) & 0170000) {
    case 0010000: return UHR_FILE_PIPE;
    case 0140000: return UHR_FILE_SOCKET;
    case 0100000: return UHR_FILE_DISK;
    case 0060000: return UHR_FILE_DISK;
    case 0020000: return UHR_FILE_DEVICE;
    default: return UHR_FILE_OTHER;
    }
}

/* Which system call a task is in, by its saved registers: nothing has to be traced for that. */
static __always_inline u16 syscall_of(struct task_struct *task, struct pt_regs *regs)
{
    if (!regs || TASK(task, flags) & PF_KTHREAD) return UHR_NO_SYSCALL;
    u64 number = REGISTER(regs, orig_ax);
    return number < 1024 ? number : UHR_NO_SYSCALL;
}

/* read, write, readv, writev: what they wait for depends on the file. */
static __always_inline bool is_by_file(u16 syscall)
{
    return syscall == 0 || syscall == 1 || syscall == 19 || syscall == 20;
}

static __always_inline struct uhr_why why_it_waits(struct task_struct *task, u32 state)
{
    struct pt_regs *regs = saved_registers(task);
    struct uhr_why why = {.syscall = syscall_of(task, regs), .how = UHR_INTERRUPTIBLE};
    if (state & TASK_STOPPED_OR_TRACED) why.how = UHR_STOPPED;
    else if (state & TASK_UNINTERRUPTIBLE) why.how = BPF_CORE_READ_BITFIELD(task, in_iowait) ? UHR_DISK : UHR_UNINTERRUPTIBLE;
    if (regs && is_by_file(why.syscall)) why.file = file_kind(task, REGISTER(regs, di));
    return why;
}

#endif
