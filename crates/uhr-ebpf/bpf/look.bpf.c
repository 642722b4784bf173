/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Stacks of waits. How long a wait lasts is known when it ends, in the waker's context, where the sleeper's stack cannot
   be read. So waits are sampled as CPU time is, by a clock: at each of its ticks user space reads this iterator, which
   looks at the threads that wait and have not been looked at in this wait. A wait of length d is caught with
   probability min(1, d / T), T being the time between two looks that come by this thread. */
#include "sample.h"

/* The pass is the only user of it; a per-CPU one would not do, for this program can be moved to another CPU. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, u32);
    __type(value, struct draft);
} look_draft SEC(".maps");

/* One pass takes only so many stacks; the next goes on where it stopped. */
struct uhr_cursor cursor SEC(".data.cursor");

static __always_inline void look_at(struct task_struct *task, struct thread *thread, u64 now_ns)
{
    u32 zero = 0, wait = thread->wait;
    struct draft *draft = bpf_map_lookup_elem(&look_draft, &zero);
    if (!draft) return;
    struct uhr_sample *sample = &draft->sample;
    begin_sample(draft, UHR_WAIT_STACK, thread->task, now_ns);
    sample->address = gap_of(thread);
    sample->wait = wait;
    sample->share = thread->share;
    sample->syscall = thread->why.syscall;
    sample->flags = UHR_IN_KERNEL | HOW_WAITS_ARE_SEEN;
    put_kernel_stack(draft, bpf_get_task_stack(task, draft->payload, UHR_MAX_FRAMES * 8, 0));
    if (task->flags & PF_KTHREAD) {
        sample->flags |= UHR_KERNEL_THREAD;
    } else {
        struct pt_regs *saved = saved_registers(task);
        if (saved) put_registers(sample, saved);
        put_user_stack(draft, DRAFT_LOOK, thread, task);
    }
    /* What was read is the wait's only if the thread still waits. */
    if (thread->wait != wait || thread->woken_ns || thread->state != UHR_WAITING) {
        COUNT(moved_on);
        return;
    }
    emit_sample(draft);
}

SEC(ITERATOR_THAT_READS_USER)
int look(struct bpf_iter__task *ctx)
{
    struct task_struct *task = ctx->task;
    u64 place = ctx->meta->seq_num;
    if (!place) {
        cursor.from = cursor.next;
        cursor.next = 0;
    }
    struct thread *thread = task ? thread_of(task) : 0;
    if (!thread || place < cursor.from || cursor.next) return 0;
    if (thread->passed_ns) thread->gap_ns = dial.pass_ns - thread->passed_ns;
    bool is_wanted = thread->state == UHR_WAITING && !thread->woken_ns && thread->looked_at != thread->wait;
    if (is_wanted && !thread->is_before_exec && !thread->is_outside) {
        if (dial.taken >= settings.looks_a_pass) {
            COUNT(postponed);
            cursor.next = place;
            return 0;
        }
        dial.taken++;
        COUNT(looked);
        thread->looked_at = thread->wait;
        look_at(task, thread, bpf_ktime_get_ns());
    }
    thread->passed_ns = dial.pass_ns;
    return 0;
}
