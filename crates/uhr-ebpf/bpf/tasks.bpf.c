/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Which threads are targets: those that a pass marked, and all that they make, from their first instruction. */
#include "calls.h"
#include "sample.h"
#include "times.h"

static __always_inline void begin_thread(struct task_struct *parent, struct task_struct *child)
{
    struct thread *maker = thread_of(parent);
    if (settings.scope == UHR_MARKED && !maker) return;
    struct thread *thread = new_thread(child);
    if (!thread) return;
    thread->since_ns = bpf_ktime_get_ns();
    thread->state = UHR_RUNNABLE;
    if (maker) {
        thread->exec_ns = maker->exec_ns;
        thread->is_before_exec = maker->is_before_exec;
        woken_by(thread, maker->task, maker);
    }
    inherit_space(maker, thread);
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
    /* Not all are gone by then (seen: up to one in a hundred, and not why). */
    forget_of(threads, child);
    forget_of(calls, child);
    begin_thread(parent, child);
    return 0;
}

static __always_inline void rename_thread(struct task_struct *task)
{
    struct thread *thread = thread_of(task);
    /* One thread can name another. */
    if (!thread || task != current_task()) return;
    u64 now_ns = bpf_ktime_get_ns();
    thread->exec_ns = now_ns;
    turn_version(thread);
    if (thread->is_before_exec) {
        thread->is_before_exec = 0;
        thread->since_ns = now_ns;
    } else if (thread->state == UHR_RUNNING && !thread->is_outside) {
        thread->on_cpu_ns += now_ns - thread->since_ns;
        thread->since_ns = now_ns;
    }
    thread->executed_ns = task->se.sum_exec_runtime; /* as of the scheduler's last tick */
    turn_version(thread);
    struct uhr_times times = {};
    put_times(&times, thread, task, UHR_RENAMED);
    if (thread->was_inside) emit(&times, sizeof times, UHR_RENAMED);
    tell_calls_of(task, false);
    /* The thread that executes a program becomes the first of its process. */
    thread->task = who(task);
}

/* A new name. With an exec the kernel gives it just before it tells of the exec itself, so that the sums so far are
   those of the old program. */
SEC("tp_btf/task_rename")
int BPF_PROG(on_rename, struct task_struct *task, const char *name)
{
    hold_cpu();
    rename_thread(task);
    release_cpu();
    return 0;
}

/* Marks the threads of wanted processes, or all. Later passes find those that the kernel had no memory for when they
   began: their first thread is a target, or their parent. */
SEC("iter/task")
int mark(struct bpf_iter__task *ctx)
{
    struct task_struct *task = ctx->task;
    if (!task) return 0;
    struct uhr_task found = who(task);
    u32 pid = found.pid, *how = bpf_map_lookup_elem(&wanted, &pid);
    struct thread *leader = thread_of(task->group_leader);
    if (settings.scope == UHR_MARKED && !how && !leader && !thread_of(task->real_parent)) return 0;
    u32 state = state_of(task);
    if (!task->pid || state & TASK_DEAD) return 0;
    struct thread *thread = new_thread(task);
    if (!thread || thread->state != UHR_UNSEEN) return 0;
    thread->is_before_exec = leader ? leader->is_before_exec : how && *how == 2;
    thread->since_ns = dial.start_ns;
    thread->wait = 1;
    if (task->on_cpu || !state) {
        thread->state = task->on_cpu ? UHR_RUNNING : UHR_RUNNABLE;
    } else {
        thread->why = why_it_waits(task, state);
        thread->state = UHR_WAITING;
        bool is_in_call = thread->why.syscall != UHR_NO_SYSCALL && !thread->is_before_exec;
        struct calls *own = settings.measures_calls && is_in_call ? calls_of(task, dial.start_ns) : 0;
        if (own) begin_call(own, thread->why.syscall, dial.start_ns);
    }
    return 0;
}

/* Tells the sums of the threads that have done something since they were last told. */
SEC("iter/task")
int tell_times(struct bpf_iter__task *ctx)
{
    struct task_struct *task = ctx->task;
    struct thread *thread = task ? thread_of(task) : 0;
    if (!thread || thread->is_before_exec || !thread->was_inside || thread->state == UHR_UNSEEN) return 0;
    if (thread->told_switches == thread->switches + 1 && thread->state != UHR_RUNNING) return 0;
    struct uhr_times times = {};
    for (u32 attempt = 0; attempt < 4; attempt++) {
        u32 version = *(volatile u32 *)&thread->version;
        put_times(&times, thread, task, UHR_TIMES);
        if (!(version & 1) && version == *(volatile u32 *)&thread->version) {
            emit(&times, sizeof times, UHR_TIMES);
            thread->told_switches = times.switches + 1;
            return 0;
        }
    }
    COUNT(torn);
    return 0;
}
