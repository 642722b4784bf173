/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Puts a sample together: what the kernel was doing, what the program was doing, in one event of just that size. */
#ifndef UHR_SAMPLE_H
#define UHR_SAMPLE_H

#include "task.h"

/* Where windows of stack are read to: behind the frames, where a copy of the stack would lie. */
static __always_inline u64 *words_of(struct draft *draft)
{
    return (u64 *)draft->payload + UHR_MAX_FRAMES + UHR_MAX_WALK;
}

#include "user_stack.h"
#ifdef UHR_BEFORE_5_18
#include "no_walk.h"
#else
#include "walk.h"
#endif

static __always_inline struct draft *draft_of(u32 number)
{
    u32 place = bpf_get_smp_processor_id() * DRAFTS + number;
    return bpf_map_lookup_elem(&drafts, &place);
}

static __always_inline void begin_sample(struct draft *draft, u32 kind, struct uhr_task task, u64 now_ns)
{
    struct uhr_sample *sample = &draft->sample;
    __builtin_memset(sample, 0, sizeof *sample);
    head(&sample->head, kind, task, now_ns);
    sample->syscall = UHR_NO_SYSCALL;
}

/* The kernel's part: 8 bytes a frame at the beginning of the payload. */
static __always_inline void put_kernel_stack(struct draft *draft, s64 bytes)
{
    if (bytes > 0 && bytes <= UHR_MAX_FRAMES * 8) draft->sample.kernel_frames = bytes / 8;
}

/* The program's registers, from where the kernel has saved them or from the context itself. */
static __always_inline void put_registers(struct uhr_sample *sample, struct pt_regs *regs)
{
    sample->ip = REGISTER(regs, ip);
    sample->sp = REGISTER(regs, sp);
    sample->bp = REGISTER(regs, bp);
    if ((REGISTER(regs, cs) & 0xffff) == 0x23) sample->flags |= UHR_32_BIT;
}

/* How much of a stack is copied: of a deep one that runs more, until the rows of a program are there or where it is known to have
   such stacks. Not if less was asked for than is usual, nor while a quarter of the ring is full. */
static __always_inline u32 bytes_to_copy(struct draft *draft)
{
    u32 ending = draft->sample.ending;
    bool is_first_sight = ending >= UHR_NO_SPACE && ending <= UHR_UNKNOWN_CODE;
    if (!settings.walks_by_rows || settings.copy_bytes < UHR_COPY) return settings.copy_bytes;
    if (draft->sample.head.kind > UHR_FAULT || !(is_first_sight || draft->walk.space.is_deep)) return settings.copy_bytes;
    u64 room = bpf_ringbuf_query(&stacks, BPF_RB_RING_SIZE) / 4;
    return bpf_ringbuf_query(&stacks, BPF_RB_AVAIL_DATA) + 4 * UHR_MAX_COPY < room ? UHR_MAX_COPY : settings.copy_bytes;
}

/* The program's part, behind all frames: a copy of its stack. `other`: whose it is, if not the running task's. */
static __always_inline void put_stack_copy(struct draft *draft, struct task_struct *other)
{
    struct uhr_sample *sample = &draft->sample;
    u32 begin = (sample->kernel_frames + sample->user_frames) * 8;
    if (begin > (UHR_MAX_FRAMES + UHR_MAX_WALK) * 8) return;
    sample->copied = copy_stack(other, sample->sp, bytes_to_copy(draft), draft->payload + begin);
}

/* The frames that frame pointers lead to. */
static __always_inline void put_chain(struct draft *draft)
{
    struct uhr_sample *sample = &draft->sample;
    u32 begin = sample->kernel_frames * 8;
    if (begin > UHR_MAX_FRAMES * 8) return;
    struct window window = {};
    u64 *words = words_of(draft), *out = (u64 *)(draft->payload + begin), leaf[UHR_LEAF_BYTES / 8];
    read_window(&window, words, 0, sample->sp & ~7ull);
    /* The first window also has what a function without a frame put on top of its stack. */
    bool has_leaf = window.bytes >= UHR_LEAF_BYTES && !(sample->sp & 7);
    __builtin_memcpy(leaf, words, sizeof leaf);
    sample->flags |= UHR_CHAIN;
    sample->user_frames = follow_frame_pointers(sample->ip, sample->sp, sample->bp, &window, words, out);
    if (sample->user_frames == UHR_MAX_FRAMES) sample->flags |= UHR_CHAIN_FULL;
    u32 top = begin + sample->user_frames * 8;
    if (!has_leaf || top > 2 * UHR_MAX_FRAMES * 8) return;
    __builtin_memcpy(draft->payload + top, leaf, sizeof leaf);
    sample->copied = UHR_LEAF_BYTES;
}

/* The program's part, in the way that was asked for. `number`: of the draft; `thread`: what is kept of it, if anything. */
static __always_inline void put_user_stack(struct draft *draft, u32 number, struct thread *thread, struct task_struct *other)
{
    if (draft->sample.flags & UHR_32_BIT) return;
    if (settings.walks_by_rows && put_walk(draft, number, thread, other) && !settings.copies_too) return;
    put_stack_copy(draft, other);
}

/* The time between two looks that come by this thread. */
static __always_inline u64 gap_of(struct thread *thread)
{
    return thread->gap_ns ? thread->gap_ns : dial.period_ns;
}

static __always_inline void emit_sample(struct draft *draft)
{
    struct uhr_sample *sample = &draft->sample;
    u64 payload = (sample->kernel_frames + sample->user_frames) * 8 + sample->copied;
    if (payload > sizeof draft->payload) return;
    emit_to(&stacks, sample, sizeof *sample + payload, sample->head.kind);
}

#endif
