/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* CPU time: a clock on each CPU, which asks who is running. An event of the CPU, never one of the thread: that one would
   begin its period anew with each thread, and not see the short ones. */
#include "sample.h"

/* Whether the running task is a target, and who it is. */
static __always_inline bool is_target(struct uhr_task *task)
{
    struct task_struct *current = current_task();
    struct thread *thread = thread_of(current);
    if (settings.scope == UHR_CGROUP && !is_in_cgroup()) return false;
    if (thread) {
        *task = thread->task;
        return !thread->is_before_exec;
    }
    if (settings.scope == UHR_MARKED) return false;
    *task = who(current);
    return true;
}

/* Both parts of the stack of the running thread. */
static __always_inline void put_stack(struct bpf_perf_event_data *ctx, struct draft *draft, u32 number)
{
    struct uhr_sample *sample = &draft->sample;
    volatile struct pt_regs *now = &ctx->regs;
    bool in_kernel = !(now->cs & 3);
    struct task_struct *current = current_task();
    if (in_kernel) {
        struct pt_regs *saved = saved_registers(current);
        sample->flags |= UHR_IN_KERNEL;
        put_kernel_stack(draft, bpf_get_stack(ctx, draft->payload, UHR_MAX_FRAMES * 8, 0));
        if (TASK(current, flags) & PF_KTHREAD) {
            sample->flags |= UHR_KERNEL_THREAD;
            return;
        }
        sample->syscall = syscall_of(current, saved);
        if (saved) put_registers(sample, saved);
    } else {
        sample->ip = now->ip;
        sample->sp = now->sp;
        sample->bp = now->bp;
        if ((now->cs & 0xffff) == 0x23) sample->flags |= UHR_32_BIT;
    }
    if (settings.follow_frame_pointers && !(sample->flags & UHR_32_BIT)) put_chain(draft);
    else put_user_stack(draft, number, thread_of(current), 0);
}

SEC("perf_event")
int on_tick(struct bpf_perf_event_data *ctx)
{
    struct uhr_task task = {};
    COUNT(ticks);
    if (!(u32)bpf_get_current_pid_tgid()) {
        COUNT(idle);
        return 0;
    }
    if (!is_target(&task)) {
        COUNT(foreign);
        return 0;
    }
    struct draft *draft = draft_of(DRAFT_CPU);
    if (!draft) return 0;
    COUNT(samples);
    begin_sample(draft, UHR_CPU, task, bpf_ktime_get_ns());
    draft->sample.address = ((volatile struct bpf_perf_event_data *)ctx)->sample_period;
    put_stack(ctx, draft, DRAFT_CPU);
    emit_sample(draft);
    return 0;
}

static __always_inline void take_fault(struct bpf_perf_event_data *ctx, u32 flags)
{
    struct uhr_task task = {};
    if (!(u32)bpf_get_current_pid_tgid() || !is_target(&task)) return;
    struct draft *draft = draft_of(DRAFT_FAULT);
    if (!draft) return;
    COUNT(faults);
    begin_sample(draft, UHR_FAULT, task, bpf_ktime_get_ns());
    draft->sample.flags = flags;
    draft->sample.address = ((volatile struct bpf_perf_event_data *)ctx)->addr;
    put_stack(ctx, draft, DRAFT_FAULT);
    emit_sample(draft);
}

SEC("perf_event")
int on_fault(struct bpf_perf_event_data *ctx)
{
    take_fault(ctx, 0);
    return 0;
}

SEC("perf_event")
int on_major_fault(struct bpf_perf_event_data *ctx)
{
    take_fault(ctx, UHR_MAJOR);
    return 0;
}
