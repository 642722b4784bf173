/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Puts a sample together: what the kernel was doing, what the program was doing, in one event of just that size. */
#ifndef UHR_SAMPLE_H
#define UHR_SAMPLE_H

#include "task.h"

/* Reads the memory of the running program, or of another task's, for which a program must be able to sleep. */
static __always_inline long read_user(struct task_struct *other, void *out, u32 bytes, u64 from)
{
    if (other) return bpf_copy_from_user_task(out, bytes, (void *)from, other, 0);
    return bpf_probe_read_user(out, bytes, (void *)from);
}

#include "user_stack.h"

static __always_inline struct draft *draft_of(u32 number)
{
    return bpf_map_lookup_elem(&drafts, &number);
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
    sample->ip = regs->ip;
    sample->sp = regs->sp;
    sample->bp = regs->bp;
    if ((regs->cs & 0xffff) == 0x23) sample->flags |= UHR_32_BIT;
}

/* The program's part, behind the kernel's: a copy of its stack. `other`: whose it is, if not the running task's. */
static __always_inline void put_stack_copy(struct draft *draft, struct task_struct *other)
{
    struct uhr_sample *sample = &draft->sample;
    u32 begin = sample->kernel_frames * 8;
    if (begin > UHR_MAX_FRAMES * 8 || sample->flags & UHR_32_BIT) return;
    sample->copied = copy_stack(other, sample->sp, settings.copy_bytes, draft->payload + begin);
}

/* The same, or its frames where frame pointers are to be followed. */
static __always_inline void put_user_stack(struct draft *draft)
{
    struct uhr_sample *sample = &draft->sample;
    u32 begin = sample->kernel_frames * 8;
    if (!settings.follow_frame_pointers) {
        put_stack_copy(draft, 0);
        return;
    }
    if (begin > UHR_MAX_FRAMES * 8 || sample->flags & UHR_32_BIT) return;
    u64 *out = (u64 *)(draft->payload + begin), leaf[UHR_LEAF_BYTES / 8];
    /* The windows lie where a copy would. The first also has what a function without a frame put on top of its stack. */
    struct window window = {.words = (u64 *)(draft->payload + 2 * UHR_MAX_FRAMES * 8)};
    if (!read_window(&window, sample->sp & ~7ull)) window.bytes = 0;
    bool has_leaf = window.bytes >= UHR_LEAF_BYTES && !(sample->sp & 7);
    __builtin_memcpy(leaf, window.words, sizeof leaf);
    sample->flags |= UHR_CHAIN;
    sample->user_frames = follow_frame_pointers(sample->ip, sample->sp, sample->bp, &window, out);
    if (sample->user_frames == UHR_MAX_FRAMES) sample->flags |= UHR_CHAIN_FULL;
    u32 top = begin + sample->user_frames * 8;
    if (!has_leaf || top > 2 * UHR_MAX_FRAMES * 8) return;
    __builtin_memcpy(draft->payload + top, leaf, sizeof leaf);
    sample->copied = UHR_LEAF_BYTES;
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
    emit_to(&stacks, draft, sizeof *sample + payload, sample->head.kind);
}

#endif
