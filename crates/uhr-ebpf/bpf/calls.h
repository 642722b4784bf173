/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The system calls of a thread: how their sums grow, and how they are told. */
#ifndef UHR_CALLS_H
#define UHR_CALLS_H

#include "task.h"

/* Sums only grow, so that whoever reads them needs no lock. */
struct calls {
    struct uhr_calls sums;
    u32 told;         /* how many had ended when they were last told */
    u32 window;       /* in which the last call ended */
    u64 ran_at_first; /* the thread's time on CPU when the first call ended in it */
};

KEPT_BY_TASK(calls, struct calls, UHR_THREADS_WITH_CALLS);

static __always_inline struct calls *calls_of(struct task_struct *task, u64 now_ns)
{
    struct calls *own = keep_of(calls, task);
    if (!own) COUNT(no_storage);
    else if (!own->sums.began_ns) own->sums.began_ns = now_ns;
    return own;
}

static __always_inline void begin_call(struct calls *own, u32 syscall, u64 now_ns)
{
    own->sums.syscall = syscall;
    own->sums.since_ns = now_ns;
}

static __always_inline void add_call(struct uhr_calls *sums, u16 syscall, u16 error, u64 ns)
{
    /* Most threads make few kinds of call, and numbers that are used together lie apart. */
    u32 start = syscall + 7 * error;
    struct uhr_call *found = &sums->others;
    for (u32 probe = 0; probe < 16; probe++) {
        struct uhr_call *slot = &sums->calls[(start + probe) & (UHR_CALLS - 1)];
        if (!slot->count) {
            slot->syscall = syscall;
            slot->error = error;
        } else if (slot->syscall != syscall || slot->error != error) {
            continue;
        }
        found = slot;
        break;
    }
    found->ns += ns;
    found->count++;
    sums->count++;
}

static __always_inline void tell_calls_of(struct task_struct *task, bool is_last)
{
    struct thread *thread = thread_of(task);
    struct calls *own = kept_of(calls, task);
    if (!thread || !own) return;
    head(&own->sums.head, UHR_COUNTED, thread->task, bpf_ktime_get_ns());
    own->sums.is_last = is_last;
    own->told = own->sums.count;
    emit(&own->sums, sizeof own->sums, UHR_COUNTED);
}

#endif
