/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The walker of frame pointers, and the copy of a stack. Reads are what costs, some 100 ns each whatever their size up
   to a few hundred bytes, so both read windows of stack and look inside them. */
#ifndef UHR_USER_STACK_H
#define UHR_USER_STACK_H

#include "abi.h"

/* Of stack at a time. Callers' frames usually lie close to each other: 2 KiB hold some twenty. */
#define UHR_WINDOW 2048

/* Reads the window that begins at `from`. A stack ends somewhere, and a read across its end fails as a whole: then what
   is left of the page is read, for a page is there or it is not. False: not even that could be read. */
static __always_inline bool read_window(struct window *window, u64 *words, struct task_struct *other, u64 from)
{
    window->start = from;
    window->bytes = UHR_WINDOW;
    if (!read_user(other, words, UHR_WINDOW, from)) return true;
    window->bytes = 0;
    u64 rest = UHR_PAGE - (from & (UHR_PAGE - 1));
    if (rest >= UHR_WINDOW || read_user(other, words, rest & (UHR_WINDOW - 1), from)) return false;
    window->bytes = rest;
    return true;
}

/* Follows frame pointers from `bp` and writes the addresses to `out`, that of the instruction itself first. Gives their
   number. `window` is the one at the top of the stack, where the first frames most often are. A frame lies above its
   callee's, and nothing else is believed: what bp holds in code without frame pointers may be anything. */
static __always_inline u32 follow_frame_pointers(u64 ip, u64 sp, u64 bp, struct window *window, u64 *words, u64 *out)
{
    u32 count = 1;
    u64 above = sp;
    out[0] = ip;
    for (u32 step = 0; step < UHR_MAX_FRAMES - 1; step++) {
        if (bp < above || bp & 7 || bp >= 1ull << 47) break;
        u64 offset = bp - window->start;
        if (!window->bytes || offset > UHR_WINDOW - 16 || offset + 16 > window->bytes) {
            if (!read_window(window, words, 0, bp) || window->bytes < 16) break;
            offset = 0;
        }
        u64 at = offset >> 3;
        /* The compiler knows this bound and would leave it out; the verifier has forgotten it. */
        barrier_var(at);
        if (at > UHR_WINDOW / 8 - 2) break;
        u64 caller = words[at + 1];
        above = bp + 16;
        bp = words[at];
        if (!caller) break;
        out[count & (UHR_MAX_FRAMES)] = caller; /* 127: a mask as well as a limit */
        count++;
    }
    return count;
}

/* Copies up to `most` bytes of stack from `sp` on, of the running program or of another. Gives how many could be read. Most
   stacks that are not smaller can be read in one piece up to UHR_COPY. */
static __always_inline u32 copy_stack(struct task_struct *other, u64 sp, u32 most, u8 *out)
{
    if (most > UHR_MAX_COPY) most = UHR_MAX_COPY;
    u32 copied = most >= UHR_COPY && !read_user(other, out, UHR_COPY, sp) ? UHR_COPY : 0;
    for (u32 page = 0; page < UHR_MAX_COPY / UHR_PAGE + 1; page++) {
        u64 from = sp + copied;
        u32 bytes = UHR_PAGE - (from & (UHR_PAGE - 1));
        if (copied >= most) break;
        if (bytes > most - copied) bytes = most - copied;
        /* Known to the compiler, and not to the verifier. */
        barrier_var(bytes);
        barrier_var(copied);
        if (bytes > UHR_PAGE || copied > UHR_MAX_COPY) break;
        if (read_user(other, out + copied, bytes, from)) break;
        copied += bytes;
    }
    return copied;
}

#endif
