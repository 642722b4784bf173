/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Waits: at every switch and every wake-up the sums of the threads that take part grow, and nothing else happens. Only
   the waits whose stack was taken (look.bpf.c) are told one by one, with who ended them. */
#include "sample.h"
#include "times.h"

/* Whether an interrupt does this and no thread. The kernel's own count of it (__preempt_count) can be read only where
   kallsyms lists variables. But interrupts out of the kernel run on a stack of their own, and the context of a
   tracepoint's program lies on the present one. Those out of a program's code run on its thread's stack; then that
   thread is in no system call. (Nor is it in a page fault, and those wake threads too, if seldom.) ksoftirqd is a thread
   that does nothing but what interrupts have left. */
static __always_inline bool is_interrupt(void *ctx, struct task_struct *current)
{
    struct uhr_counters *counters = counted();
    if (!counters) return false;
    /* A pointer has to go through memory to become a number. */
    *(void *volatile *)&counters->place = ctx;
    u64 offset = *(volatile u64 *)&counters->place - (u64)TASK(current, stack);
    if (offset >= TASK_STACK_BYTES) return true;
    if (TASK(current, flags) & PF_KTHREAD) {
        struct { char first[8], rest[8]; } name;
        bpf_get_current_comm(&name, sizeof name);
        return *(u64 *)name.first == *(const u64 *)"ksoftirq" && name.rest[0] == 'd';
    }
    struct pt_regs *saved = saved_registers(current);
    return saved && (s64)REGISTER(saved, orig_ax) < 0;
}

static __always_inline void tell_end(struct thread *thread, u64 now_ns)
{
    struct uhr_wait_end end = {.since_ns = thread->since_ns, .woken_ns = thread->woken_ns, .wait = thread->wait, .why = thread->why};
    head(&end.head, UHR_WAIT_END, thread->task, now_ns);
    emit(&end, sizeof end, UHR_WAIT_END);
}

static __always_inline void get_cpu(struct thread *thread, u64 now_ns)
{
    bool is_counted = !thread->is_before_exec && !thread->is_outside;
    if (thread->state == UHR_WAITING) {
        u64 woken_ns = thread->woken_ns;
        if (woken_ns < thread->since_ns) {
            if (!woken_ns) thread->unwoken++;
            woken_ns = woken_ns ? thread->since_ns : now_ns;
        }
        if (is_counted) {
            add_wait(thread, woken_ns - thread->since_ns);
            thread->runqueue_ns += now_ns - woken_ns;
        }
        if (thread->looked_at == thread->wait) tell_end(thread, now_ns);
    } else if (thread->state == UHR_RUNNABLE && is_counted) {
        thread->runqueue_ns += now_ns - thread->since_ns;
    }
    thread->state = UHR_RUNNING;
    thread->since_ns = now_ns;
    thread->woken_ns = 0;
}

/* How long the thread has run since it last left a CPU, by the scheduler's own count. */
static __always_inline u64 ran_since_it_left(struct thread *thread, struct task_struct *task)
{
    u64 executed_ns = task->se.sum_exec_runtime, ran_ns = executed_ns - thread->executed_ns;
    thread->executed_ns = executed_ns;
    return ran_ns;
}

/* Of some threads the kernel does not tell that they get a CPU or leave it (seen: those of a machine's supervisor), and so
   not whose turn it is then. The scheduler's count knows: what a thread did not run of its turn, it waited for its CPU. */
static __always_inline void end_turn(struct thread *thread, struct task_struct *task, u64 now_ns)
{
    u64 ran_ns = ran_since_it_left(thread, task), gap_ns = now_ns - thread->since_ns;
    if (ran_ns > gap_ns) ran_ns = gap_ns;
    if (thread->state == UHR_WAITING || thread->state == UHR_RUNNABLE) get_cpu(thread, now_ns - ran_ns);
    if (thread->state != UHR_RUNNING || thread->is_before_exec || thread->is_outside) return;
    thread->on_cpu_ns += ran_ns;
    thread->runqueue_ns += now_ns - thread->since_ns - ran_ns;
}

static __always_inline void leave_cpu(struct thread *thread, struct task_struct *task, bool is_preempted, u64 now_ns)
{
    u32 state = state_of(task);
    if (settings.scope == UHR_CGROUP) is_inside(thread, is_in_cgroup());
    turn_version(thread);
    end_turn(thread, task, now_ns);
    thread->since_ns = now_ns;
    thread->switches++;
    if (is_preempted || !state) {
        thread->state = UHR_RUNNABLE;
    } else {
        /* Somebody wakes it while it is still on its way out. */
        if (state != TASK_WAKING) thread->woken_ns = 0;
        thread->why = why_it_waits(task, state);
        thread->wait++;
        thread->share = dial.share;
        thread->state = UHR_WAITING;
        COUNT(waits);
    }
    turn_version(thread);
}

/* The stack of the running thread, from inside the kernel. */
static __always_inline void put_own_stack(void *ctx, struct draft *draft, struct task_struct *current)
{
    struct uhr_sample *sample = &draft->sample;
    sample->flags |= UHR_IN_KERNEL;
    put_kernel_stack(draft, bpf_get_stack(ctx, draft->payload, UHR_MAX_FRAMES * 8, 0));
    if (TASK(current, flags) & PF_KTHREAD) {
        sample->flags |= UHR_KERNEL_THREAD;
        return;
    }
    struct pt_regs *saved = saved_registers(current);
    sample->syscall = syscall_of(current, saved);
    if (saved) put_registers(sample, saved);
    put_user_stack(draft, DRAFT_SCHEDULER, thread_of(current), 0);
}

/* Of some waits the stack is taken as they begin, by lot: the clock cannot see the shortest. */
static __always_inline void take_by_lot(void *ctx, struct thread *thread, struct task_struct *current, u64 now_ns)
{
    u32 share = thread->share;
    if (thread->state != UHR_WAITING || thread->is_before_exec || thread->is_outside) return;
    if (!share || (share != ~0u && bpf_get_prandom_u32() > share)) return;
    struct draft *draft = draft_of(DRAFT_SCHEDULER);
    if (!draft) return;
    thread->looked_at = thread->wait;
    begin_sample(draft, UHR_WAIT_STACK, thread->task, now_ns);
    draft->sample.address = gap_of(thread);
    draft->sample.wait = thread->wait;
    draft->sample.share = share;
    draft->sample.flags = UHR_AT_SWITCH | HOW_WAITS_ARE_SEEN;
    put_own_stack(ctx, draft, current);
    emit_sample(draft);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool is_preempted, struct task_struct *prev, struct task_struct *next)
{
    u64 now_ns = bpf_ktime_get_ns();
    struct thread *thread;
    if (prev->pid) {
        thread = target_of(prev);
        if (thread) {
            leave_cpu(thread, prev, is_preempted, now_ns);
            if (state_of(prev) & TASK_DEAD) {
                struct uhr_times times = {};
                put_times(&times, thread, prev, UHR_THREAD_END);
                if (thread->was_inside) emit(&times, sizeof times, UHR_THREAD_END);
                /* A zombie waits for nothing. */
                thread->state = UHR_UNSEEN;
            } else {
                take_by_lot(ctx, thread, prev, now_ns);
            }
        }
    }
    if (next->pid) {
        thread = target_of(next);
        if (thread) {
            turn_version(thread);
            get_cpu(thread, now_ns);
            turn_version(thread);
        }
    }
    return 0;
}

/* One thread can wake thousands at once, and a stack of 16 KiB for each would fill the ring. */
static __always_inline bool are_too_many(u64 now_ns)
{
    u64 moment = now_ns >> 24; /* 17 ms */
    struct uhr_counters *counters = counted();
    if (!counters) return true;
    if (counters->moment != moment) {
        counters->moment = moment;
        counters->wakers = 0;
    }
    if (counters->wakers++ < 32) return false;
    counters->unseen_wakers++;
    return true;
}

/* What the waker was doing, and who had woken it. Of an interrupt, too: what it runs may be the thread's own doing, as
   when a packet is for a neighbour on the same machine. The stack tells, later. */
static __always_inline void tell_waker(void *ctx, struct thread *thread, struct task_struct *current, bool by_interrupt, u64 now_ns)
{
    struct thread *own = thread_of(current);
    struct uhr_task waker = own ? own->task : who(current);
    struct uhr_woken woken = {.wait = thread->wait, .is_interrupt = by_interrupt, .waker = waker};
    head(&woken.head, UHR_WOKEN, thread->task, now_ns);
    for (u32 hop = 0; own && hop < UHR_HOPS; hop++) woken.hops[hop] = own->wakers[hop];
    bpf_get_current_comm(woken.name, sizeof woken.name);
    emit(&woken, sizeof woken, UHR_WOKEN);

    if (are_too_many(now_ns)) return;
    struct draft *draft = draft_of(DRAFT_SCHEDULER);
    if (!draft) return;
    begin_sample(draft, UHR_WAKER_STACK, waker, now_ns);
    draft->sample.wait = thread->wait;
    draft->sample.wait_tid = thread->task.tid;
    put_own_stack(ctx, draft, current);
    emit_sample(draft);
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *task)
{
    struct thread *thread = thread_of(task);
    if (!thread || thread->woken_ns || thread->state == UHR_RUNNABLE) return 0;
    struct task_struct *current = current_task();
    bool by_interrupt = is_interrupt(ctx, current);
    u64 now_ns = bpf_ktime_get_ns();
    if (by_interrupt) {
        woken_by(thread, (struct uhr_task){.tid = ~0u}, 0);
    } else {
        struct thread *own = thread_of(current);
        woken_by(thread, own ? own->task : who(current), own);
    }
    /* A thread that still runs keeps the time in case it is on its way out (leave_cpu). */
    thread->woken_ns = now_ns;
    if (thread->state == UHR_WAITING && thread->looked_at == thread->wait)
        tell_waker(ctx, thread, current, by_interrupt, now_ns);
    return 0;
}
