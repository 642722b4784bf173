/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The walker by rows of call frame information: from the leaf to the thread's first function, or to where it has to give
   up. Then the stack is copied, and user space walks, which has all rows and can read code. */
#ifndef UHR_WALK_H
#define UHR_WALK_H

#include "unwind_rows.h"

/* Reads a word of the stack. */
static __always_inline bool read_word(struct draft *draft, struct task_struct *other, u64 address, u64 *word)
{
    struct walk *walk = &draft->walk;
    if (address & 7 || address >= 1ull << 47) return false;
    u64 offset = address - walk->window.start;
    if (offset >= walk->window.bytes) {
        walk->windows++;
        if (!read_window(&walk->window, words_of(draft), other, address)) return false;
        offset = 0;
    }
    *word = words_of(draft)[offset >> 3 & (UHR_WINDOW / 8 - 1)];
    return true;
}

static __always_inline long end_walk(struct walk *walk, u32 ending)
{
    walk->ending = ending;
    return 1;
}

static __always_inline void push_frame(struct draft *draft)
{
    struct walk *walk = &draft->walk;
    u32 half = UHR_MAX_WALK / 2, count = walk->count;
    /* Behind the first half a ring, which holds the last. */
    u32 at = walk->first + (count < half ? count : half + (count & (half - 1)));
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
    /* Go ends the chain where its scheduler leaves a goroutine's stack for good. */
    if (!at && !walk->is_bp_lost && walk->code.root) return end_walk(walk, UHR_FIRST);
    /* Go's runtime goes over to another stack, which may lie below, and leaves the chain of frame pointers whole. */
    if (at < walk->sp && (!walk->code.root || walk->switches++ >= 4)) return end_walk(walk, UHR_GENERATED);
    if (walk->is_bp_lost || !read_word(draft, other, at, &walk->bp) || !read_word(draft, other, at + 8, &walk->ip) ||
        !walk->ip)
        return end_walk(walk, UHR_GENERATED);
    walk->sp = at + 16;
    walk->is_return = walk->by_bp = 1;
    return 0;
}

/* The canonical frame address of a row. Gives 0, or why it is not known. */
static __always_inline u32 find_cfa(struct draft *draft, struct task_struct *other, u64 row, u64 *cfa)
{
    struct walk *walk = &draft->walk;
    s64 words = (s32)(row >> 16) >> 8;
    u8 form = row >> 16;
    switch (form) {
    case UHR_ROW_SP:
        *cfa = walk->sp + words * 8;
        return 0;
    case UHR_ROW_PLT:
        *cfa = walk->sp + ((s64)(walk->ip & 15) >= words ? 16 : 8);
        return 0;
    case UHR_ROW_BP:
    case UHR_ROW_SAVED:
        if (walk->is_bp_lost) return UHR_BP_LOST;
        *cfa = walk->bp + words * 8;
        if (form == UHR_ROW_SAVED && !read_word(draft, other, *cfa, cfa)) return UHR_UNREADABLE;
        return 0;
    default:
        return UHR_COMPLEX;
    }
}

/* The caller's rbp. False: it cannot be read. */
static __always_inline bool restore_bp(struct draft *draft, struct task_struct *other, u64 row, u64 cfa)
{
    struct walk *walk = &draft->walk;
    s64 words = (s16)(row >> 48);
    bool is_from_bp = (u8)(row >> 16) == UHR_ROW_SAVED;
    u64 saved = (is_from_bp ? walk->bp : cfa) + words * 8;
    if (words == UHR_BP_NOWHERE) walk->is_bp_lost = 1;
    /* Compilers go on naming the slot of a register that was popped. Below the stack pointer nothing is any more, and the
       register has its old value already. */
    if (words == UHR_BP_NOWHERE || (!words && !is_from_bp) || saved < walk->sp) return true;
    walk->is_bp_lost = 0;
    return read_word(draft, other, saved, &walk->bp);
}

/* Looks up the code of the address, and its rows. Gives 0, or why they are not known. */
static __always_inline u32 find_place(struct walk *walk, u64 address)
{
    if (address < walk->code.start || address >= walk->code.end) {
        if (!find_code(&walk->space, address, &walk->code)) {
            walk->code.end = 0;
            return UHR_UNKNOWN_CODE;
        }
        u32 number = walk->code.table;
        struct uhr_table *table = bpf_map_lookup_elem(&tables, &number);
        if (!table) return UHR_NOT_YET;
        walk->table = *table;
    }
    if (walk->code.how == UHR_BY_NOTHING) return UHR_NOT_YET;
    return walk->code.how == UHR_BY_READING_CODE ? UHR_GENERATED : 0;
}

/* Where the row of an address is kept for the next walk that comes by. Nearly all do: samples of a program have most of
   their callers in common, and a search costs four times the step itself. */
static __always_inline struct known_row *place_of_row(struct known_rows *known, u64 key)
{
    return &known->rows[key * 0x9e3779b97f4a7c15ull >> (64 - UHR_KNOWN_BITS)];
}

/* The frame address of the caller and its other registers, by a row that says where. */
static __always_inline long leave_by_row(struct draft *draft, struct task_struct *other, u64 row)
{
    struct walk *walk = &draft->walk;
    u64 cfa = 0, return_address;
    push_frame(draft);
    u32 ending = find_cfa(draft, other, row, &cfa);
    if (ending) return end_walk(walk, ending);
    if (cfa <= walk->sp) return end_walk(walk, UHR_NO_PROGRESS);
    if (!restore_bp(draft, other, row, cfa) || !read_word(draft, other, cfa - 8, &return_address))
        return end_walk(walk, UHR_UNREADABLE);
    if (!return_address) return end_walk(walk, UHR_FIRST);
    walk->ip = return_address;
    walk->sp = cfa;
    walk->is_return = 1;
    walk->by_bp = 0;
    return 0;
}

/* One frame. 1 ends the loop. */
static __always_inline long walk_frame(struct draft *draft, struct known_rows *known, struct task_struct *other)
{
    struct walk *walk = &draft->walk;
    u64 address = walk->ip - walk->is_return;
    if (walk->windows > UHR_MAX_WINDOWS) return 1;
    /* With the version: workers that a server has forked have the same addresses, and would push each other out. */
    u64 key = address | (u64)walk->space.version << 48;
    struct known_row *place = place_of_row(known, key);
    u64 row = place->row;
    if (address >> 48 || place->key != key || (u16)row != walk->space.version >> 16) {
        u32 ending = find_place(walk, address);
        if (ending) return end_walk(walk, ending);
        row = walk->code.how & UHR_BY_ROWS ? find_row(&walk->table, address - walk->code.bias) : 0;
        u8 form = row >> 16;
        if (form == UHR_ROW_SIGNAL) return leave_signal(draft, other);
        if (form == UHR_ROW_NONE && walk->code.how & UHR_BY_FRAME_POINTERS) return leave_by_bp(draft, other);
        if (form == UHR_ROW_NONE) return end_walk(walk, UHR_UNCOVERED);
        if (form == UHR_ROW_FIRST) {
            push_frame(draft);
            return end_walk(walk, UHR_FIRST);
        }
        place->key = key;
        place->row = (row & ~0xffffull) | walk->space.version >> 16;
    }
    return leave_by_row(draft, other, row);
}

struct walk_context {
    struct draft *draft;
    struct known_rows *known;
    struct task_struct *other;
};

static long walk_own(u32 step, struct walk_context *context)
{
    return walk_frame(context->draft, context->known, 0);
}

static long walk_other(u32 step, struct walk_context *context)
{
    return walk_frame(context->draft, context->known, context->other);
}

/* What a function without a frame has put on top of the stack, behind the frames. */
static __always_inline void put_leaf(struct draft *draft, struct task_struct *other)
{
    struct uhr_sample *sample = &draft->sample;
    u32 top = (sample->kernel_frames + sample->user_frames) * 8;
    if (top > (UHR_MAX_FRAMES + UHR_MAX_WALK) * 8) return;
    if (!read_user(other, draft->payload + top, UHR_LEAF_BYTES, sample->sp)) sample->copied = UHR_LEAF_BYTES;
}

/* The frames that rows lead to. False: they do not lead far enough. */
static __always_inline bool put_walk(struct draft *draft, u32 number, struct thread *thread, struct task_struct *other)
{
    struct uhr_sample *sample = &draft->sample;
    struct walk *walk = &draft->walk;
    struct walk_context context = {.draft = draft, .known = bpf_map_lookup_elem(&known_rows, &number), .other = other};
    u32 pid = sample->head.pid;
    struct uhr_space *space = bpf_map_lookup_elem(&spaces, &pid);
    __builtin_memset(walk, 0, sizeof *walk);
    if (!space || !context.known || (thread && space->as_of_ns < thread->exec_ns)) {
        walk->ending = UHR_NO_SPACE;
    } else {
        walk->ip = sample->ip;
        walk->sp = sample->sp;
        walk->bp = sample->bp;
        walk->space = *space;
        walk->first = sample->kernel_frames;
        /* In the middle of an exec or an exit there is no stack any more. */
        if (!read_window(&walk->window, words_of(draft), other, walk->sp & ~7ull)) return true;
        if (other) bpf_loop(UHR_MAX_STEPS, walk_other, &context, 0);
        else bpf_loop(UHR_MAX_STEPS, walk_own, &context, 0);
    }
    u32 ending = walk->ending;
    struct uhr_counters *counters = counted();
    if (counters && ending < UHR_ENDINGS) counters->walks[ending]++;
    sample->ending = ending;
    if (ending >= UHR_GAVE_UP) return false;
    sample->flags |= UHR_WALKED;
    sample->as_of_ns = walk->space.as_of_ns;
    sample->user_frames = walk->count < UHR_MAX_WALK ? walk->count : UHR_MAX_WALK;
    sample->left_out = walk->count - sample->user_frames;
    if (walk->leaf_by_bp) put_leaf(draft, other);
    return true;
}

#endif
