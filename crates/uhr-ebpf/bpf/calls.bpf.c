/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* How many system calls there are, how they end and how long they take. To trace them costs every call of every program
   on the machine some 300 ns, so these programs are attached only where that was asked for, or for a few milliseconds now
   and then. What time goes to needs none of it: samples and waits know their system call. */
#include "calls.h"

/* The kernel's own codes for a call that a signal interrupted and that may begin again (include/linux/errno.h). */
enum { FIRST_RESTART = 512, MAX_ERRNO = 4095 };
enum { RT_SIGRETURN = 15, CLONE = 56, FORK = 57, VFORK = 58, GETPPID = 110, CLONE3 = 435 };

/* The running thread, if its calls are to be counted. */
static __always_inline struct thread *counted_thread(struct task_struct *current)
{
    struct thread *thread = target_of(current);
    if (!dial.counting || !thread || thread->is_before_exec || thread->is_outside) return 0;
    return thread;
}

/* How long the thread ran while it made the calls of this window: counting them took a part of that. */
static __always_inline void add_run(struct calls *own, struct thread *thread, u64 now_ns)
{
    u64 ran_ns = thread->on_cpu_ns + (thread->state == UHR_RUNNING ? now_ns - thread->since_ns : 0);
    if (own->window != dial.counting) {
        own->window = dial.counting;
        own->ran_at_first = ran_ns;
    }
    own->sums.ran_ns = ran_ns - own->ran_at_first;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(on_enter, struct pt_regs *regs, long number)
{
    u64 now_ns = bpf_ktime_get_ns();
    struct task_struct *current = current_task();
    struct calls *own = counted_thread(current) ? calls_of(current, now_ns) : 0;
    if (own) begin_call(own, number, now_ns);
    return 0;
}

/* A new thread begins by leaving the call that its maker made. */
static __always_inline bool is_first_of_thread(s64 number, long result)
{
    return !result && ((number >= CLONE && number <= VFORK) || number == CLONE3);
}

/* Calls are counted as they end, however long ago they began: so a window sees long ones and short ones in their right
   share. */
static __always_inline void end_call(struct pt_regs *regs, long result)
{
    u64 now_ns = bpf_ktime_get_ns(), ns = 0;
    s64 number = regs->orig_ax;
    if (is_first_of_thread(number, result)) return;
    struct task_struct *current = current_task();
    struct thread *thread = counted_thread(current);
    bool is_calibration = number == GETPPID && regs->di == settings.calibration;
    struct calls *own = thread || is_calibration ? calls_of(current, now_ns) : 0;
    if (!own) return;
    if (thread) add_run(own, thread, now_ns);
    if (own->sums.since_ns) {
        number = own->sums.syscall;
        ns = now_ns - own->sums.since_ns;
        own->sums.since_ns = 0;
    }
    /* It has put back the registers of before the signal, and with them their number. */
    if (number < 0) number = RT_SIGRETURN;
    u16 error = result < 0 && result >= -MAX_ERRNO ? -result : 0;
    if (error > FIRST_RESTART) error = FIRST_RESTART;
    add_call(&own->sums, number, error, ns);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(on_exit, struct pt_regs *regs, long result)
{
    end_call(regs, result);
    return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_last_call, struct task_struct *task)
{
    tell_calls_of(task, true);
    return 0;
}

/* Tells the calls of the threads that have made some since they were last told; in the end also who is in one. */
SEC("iter/task")
int tell_calls(struct bpf_iter__task *ctx)
{
    struct task_struct *task = ctx->task;
    struct calls *own = task ? kept_of(calls, task) : 0;
    if (own && (own->told != own->sums.count || (!dial.counting && own->sums.since_ns))) tell_calls_of(task, false);
    return 0;
}
