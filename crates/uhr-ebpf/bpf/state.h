/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What the programs keep between two events, and the way out of the kernel. */
#ifndef UHR_STATE_H
#define UHR_STATE_H

#ifdef UHR_BEFORE_5_18
#include "before_5_18.h"
#else
#include "since_5_18.h"
#endif

const volatile struct uhr_settings settings SEC(".rodata.settings");

/* Set anew before each look at waiting threads. */
struct uhr_dial dial SEC(".data.dial");

/* One thread. It lives as long as the kernel's own task does, so that no reused pid can be mistaken for it; having one
   is what makes a thread a target. */
struct thread {
    u32 version; /* odd while the switch program changes it */
    u32 state;
    struct uhr_task task;
    u64 since_ns;
    u64 woken_ns;
    u64 on_cpu_ns;
    u64 runqueue_ns;
    u64 exec_ns;     /* when it, or the thread that made it, was last renamed, perhaps by an exec */
    u64 executed_ns; /* by the scheduler's own count, when it last left a CPU */
    u64 passed_ns; /* when the last look came by that could have taken its stack */
    u64 gap_ns;    /* and how long before it none did */
    u32 switches, told_switches; /* the latter: when its sums were last told */
    u32 crowded, unwoken;
    u32 wait, looked_at; /* number of the present wait, and of the last whose stack was taken */
    struct uhr_why why;
    u8 is_before_exec; /* a command that has not executed its program yet */
    u8 is_outside;     /* it is not in the cgroup now */
    u8 was_inside;     /* but has been, or there is none to be in */
    u8 unused;
    u32 share;         /* of `dial`, when its present wait began */
    struct uhr_task wakers[UHR_HOPS + 1];
    struct uhr_slot slots[UHR_SLOTS];
};

KEPT_BY_TASK(threads, struct thread, UHR_THREADS);

/* Processes to be marked; the value is 1, or 2 for a command before its exec. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 65536);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, u32);
    __type(value, u32);
} wanted SEC(".maps");

/* Samples with their stacks. */
struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 8 << 20);
} stacks SEC(".maps");

/* Everything else. It is small and exact, and must not be lost because stacks are many. */
struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 4 << 20);
} events SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, u32);
    __type(value, struct uhr_counters);
} counters SEC(".maps");

/* A piece of the program's stack. */
struct window {
    u64 start;
    u64 bytes; /* how many of it could be read */
};

/* A walk along a stack by rows. It is kept outside the program's own stack, of which the verifier knows each value: here it
   knows none, and so does not follow every way that they could take. */
struct walk {
    u64 ip, sp, bp;
    struct uhr_space space;
    struct uhr_code code;   /* where the last frame was, and */
    struct uhr_table table; /* its rows */
    struct window window;
    u32 first; /* where the frames begin in the payload */
    u32 count; /* of them */
    u8 is_return;  /* ip is a return address, not that of an instruction */
    u8 is_bp_lost;
    u8 by_bp;      /* the last step was by a frame pointer alone */
    u8 leaf_by_bp; /* the first was */
    u32 ending;
    u32 switches; /* from one stack to another */
    u32 windows;  /* that were read */
};

/* Where a sample is put together: too big for the program's own stack. Each program has its own on each CPU, for one can
   interrupt the other there. */
struct draft {
    struct walk walk;
    struct uhr_sample sample;
    u8 payload[(UHR_MAX_FRAMES + UHR_MAX_WALK) * 8 + UHR_MAX_COPY + UHR_PAGE]; /* the page is for the verifier */
};
enum { DRAFT_CPU, DRAFT_FAULT, DRAFT_SCHEDULER, DRAFTS, DRAFT_LOOK = DRAFTS };

/* The elements of a per-CPU map can have 32 KiB at most. The loader makes room for all CPUs. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, DRAFTS);
    __type(key, u32);
    __type(value, struct draft);
} drafts SEC(".maps");

static __always_inline struct uhr_counters *counted(void)
{
    u32 zero = 0;
    return bpf_map_lookup_elem(&counters, &zero);
}

#define COUNT(field)                                  \
    do {                                              \
        struct uhr_counters *count_ = counted();      \
        if (count_) count_->field++;                  \
    } while (0)

/* Sends an event, without waking its reader: that one looks every few milliseconds. */
static __always_inline void emit_to(void *ring, void *event, u64 bytes, u32 kind)
{
    if (bpf_ringbuf_output(ring, event, bytes, BPF_RB_NO_WAKEUP) && kind < UHR_EVENT_KINDS) COUNT(refused[kind]);
}

static __always_inline void emit(void *event, u64 bytes, u32 kind)
{
    emit_to(&events, event, bytes, kind);
}

static __always_inline void head(struct uhr_head *head, u32 kind, struct uhr_task task, u64 now_ns)
{
    head->kind = kind;
    head->cpu = bpf_get_smp_processor_id();
    head->time_ns = now_ns;
    head->pid = task.pid;
    head->tid = task.tid;
}

#endif
