/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The sums of a thread: how they grow, and how they are told. */
#ifndef UHR_TIMES_H
#define UHR_TIMES_H

#include "task.h"

/* To be called before the sums of a thread change and after: readers on another CPU see an odd version meanwhile. */
static __always_inline void turn_version(struct thread *thread)
{
    *(volatile u32 *)&thread->version += 1;
    __asm__ volatile("" ::: "memory");
}

static __always_inline bool is_same(struct uhr_why a, struct uhr_why b)
{
    return a.syscall == b.syscall && a.how == b.how && a.file == b.file;
}

/* Adds a wait to the slot of its why. */
static __always_inline void add_wait(struct thread *thread, u64 ns)
{
    if (ns < UHR_SHORT_NS) thread->why.file |= UHR_SHORT;
    u32 at = 0;
    for (; at < UHR_SLOTS - 1; at++) {
        struct uhr_slot *taken = &thread->slots[at];
        if (!taken->count || is_same(taken->why, thread->why)) break;
    }
    /* The compiler knows that this is so, and the verifier of 6.1 does not. */
    barrier_var(at);
    if (at >= UHR_SLOTS) return;
    struct uhr_slot *slot = &thread->slots[at];
    if (!slot->count) slot->why = thread->why;
    if (!is_same(slot->why, thread->why)) thread->crowded++;
    slot->ns += ns;
    slot->count++;
}

static __always_inline void put_times(struct uhr_times *times, struct thread *thread, struct task_struct *task, u32 kind)
{
    head(&times->head, kind, thread->task, bpf_ktime_get_ns());
    times->since_ns = thread->since_ns;
    times->woken_ns = thread->woken_ns;
    times->on_cpu_ns = thread->on_cpu_ns;
    times->runqueue_ns = thread->runqueue_ns;
    times->minor_faults = task->min_flt;
    times->major_faults = task->maj_flt;
    times->switches = thread->switches;
    times->crowded = thread->crowded;
    times->unwoken = thread->unwoken;
    times->why = thread->why;
    times->wait = thread->wait;
    times->state = thread->state;
    __builtin_memcpy(times->slots, thread->slots, sizeof times->slots);
}

#endif
