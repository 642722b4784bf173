/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* In place of walk.h before 5.18: there is no loop of so many steps (bpf_loop, 5.17), and stacks are copied. */
#ifndef UHR_NO_WALK_H
#define UHR_NO_WALK_H

#include "state.h"

static __always_inline bool put_walk(struct draft *draft, u32 number, struct thread *thread, struct task_struct *other)
{
    return false;
}

static __always_inline void inherit_space(struct thread *maker, struct thread *thread) {}

#endif
