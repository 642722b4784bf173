/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The walker by rows of call frame information: from the leaf to the thread's first function, or to where it has to give
   up. Then the stack is copied, and user space walks, which has all rows and can read code. */
#ifndef UHR_WALK_H
#define UHR_WALK_H

#include "unwind_rows.h"
#include "user_stack.h"

/* Reads a word of the stack. */
static __always_inline bool read_word(struct draft *draft, struct task_struct *other, u64 address, u64 *word)
{
    struct walk *walk = &draft->walk;
    if (address & 7 || address >= 1ull << 47) return false;
    u64 offset = address - walk->window.start;
    if (offset >= walk->window.bytes) {
        if (!read_window(&walk->window, words_of(draft), other, address)) return false;
        offset = 0;
    }
    *word = words_of(draft)[offset >> 3 & (UHR_WINDOW / 8 - 1)];
    return true;
}

static __always_inline long end_walk(struct walk *walk, u8 ending)
{
    walk->ending = ending;
    return 1;
}

static __always_inline void push_frame(struct draft *draft)
{
    struct walk *walk = &draft->walk;
    u32 at = walk->first + (walk->count & (UHR_MAX_WALK - 1));
    barrier_var(at);
    if (at >= UHR_MAX_FRAMES + UHR_MAX_WALK) return;
    ((u64 *)draft->payload)[at] = walk->ip | (walk->is_return ? 0 : UHR_INSTRUCTION) | (walk->by_bp ? UHR_FROM_BP : 0);
    walk->count++;
}

/* The registers as the kernel saved them for a signal handler: `struct rt_sigframe` behind its return address. */
static __always_inline long leave_signal(struct draft *draft, struct task_struct *other)
{
    struct walk *walk = &draft->walk;
    u64 frame = walk->sp;
    walk->is_return = 0;
    push_frame(draft);
    if (!read_word(draft, other, frame + 120, &walk->bp) || !read_word(draft, other, frame + 160, &walk->sp) ||
        !read_word(draft, other, frame + 168, &walk->ip))
        return end_walk(walk, UHR_UNREADABLE);
    walk->is_bp_lost = walk->by_bp = 0;
    return 0;
}

/* Code without rows that is known to keep frame pointers. */
static __always_inline long leave_by_bp(struct draft *draft, struct task_struct *other)
{
    struct walk *walk = &draft->walk;
    u64 at = walk->bp;
    push_frame(draft);
    if (walk->count == 1) walk->leaf_by_bp = 1;
    if (walk->ip == walk->code.root) return end_walk(walk, UHR_FIRST);
    if (walk->is_bp_lost || at < walk->sp || !read_word(draft, other, at, &walk->bp) ||
        !read_word(draft, other, at + 8, &walk->ip) || !walk->ip)
        return end_walk(walk, UHR_GENERATED);
    walk->sp = at + 16;
    walk->is_return = walk->by_bp = 1;
    return 0;
}

/* One frame. 1 ends the loop. */
static __always_inline long walk_frame(struct draft *draft, struct task_struct *other)
{
    struct walk *walk = &draft->walk;
    u64 address = walk->ip - walk->is_return;
    if (address < walk->code.start || address >= walk->code.end) {
        if (!find_code(&walk->space, address, &walk->code)) {
            walk->code.end = 0;
            return end_walk(walk, UHR_UNKNOWN_CODE);
        }
        u32 number = walk->code.table;
        struct uhr_table *table = bpf_map_lookup_elem(&tables, &number);
        if (!table) return end_walk(walk, UHR_NOT_YET);
        walk->table = *table;
    }
    if (walk->code.how == UHR_BY_NOTHING) return end_walk(walk, UHR_NOT_YET);
    if (walk->code.how == UHR_BY_READING_CODE) return end_walk(walk, UHR_GENERATED);
    u64 row = walk->code.how & UHR_BY_ROWS ? find_row(&walk->table, address - walk->code.bias) : 0;
    u64 base = walk->sp, return_address, cfa;
    s32 cfa_words = (s32)(row >> 16) >> 8;
    s16 bp_words = row >> 48;
    switch ((row >> 16) & 0xff) {
    case UHR_ROW_SP:
        cfa = base + cfa_words * 8ll;
        break;
    case UHR_ROW_BP:
        base = walk->bp;
        if (walk->is_bp_lost) return end_walk(walk, UHR_BP_LOST);
        cfa = base + cfa_words * 8ll;
        break;
    case UHR_ROW_SAVED:
        base = walk->bp;
        if (walk->is_bp_lost) return end_walk(walk, UHR_BP_LOST);
        if (!read_word(draft, other, base + cfa_words * 8ll, &cfa)) return end_walk(walk, UHR_UNREADABLE);
        break;
    case UHR_ROW_PLT:
        cfa = base + ((address & 15) >= cfa_words ? 16 : 8);
        break;
    case UHR_ROW_SIGNAL:
        return leave_signal(draft, other);
    case UHR_ROW_FIRST:
        push_frame(draft);
        return end_walk(walk, UHR_FIRST);
    case UHR_ROW_NONE:
        if (walk->code.how & UHR_BY_FRAME_POINTERS) return leave_by_bp(draft, other);
        return end_walk(walk, UHR_UNCOVERED);
    default:
        return end_walk(walk, UHR_COMPLEX);
    }
    push_frame(draft);
    if (cfa <= walk->sp) return end_walk(walk, UHR_NO_PROGRESS);
    u64 saved = ((row >> 16) & 0xff) == UHR_ROW_SAVED ? base + bp_words * 8ll : cfa + bp_words * 8ll;
    if (bp_words == UHR_BP_NOWHERE) {
        walk->is_bp_lost = 1;
    } else if (bp_words || ((row >> 16) & 0xff) == UHR_ROW_SAVED) {
        /* Compilers go on naming the slot of a register that was popped. Below the stack pointer nothing is any more, and
           the register has its old value already. */
        if (saved >= walk->sp) {
            if (!read_word(draft, other, saved, &walk->bp)) return end_walk(walk, UHR_UNREADABLE);
            walk->is_bp_lost = 0;
        }
    }
    if (!read_word(draft, other, cfa - 8, &return_address)) return end_walk(walk, UHR_UNREADABLE);
    if (!return_address) return end_walk(walk, UHR_FIRST);
    walk->ip = return_address;
    walk->sp = cfa;
    walk->is_return = 1;
    walk->by_bp = 0;
    return 0;
}

struct walk_context {
    struct draft *draft;
    struct task_struct *other;
};

static long walk_own(u32 step, struct walk_context *context)
{
    return walk_frame(context->draft, 0);
}

static long walk_other(u32 step, struct walk_context *context)
{
    return walk_frame(context->draft, context->other);
}

#endif
