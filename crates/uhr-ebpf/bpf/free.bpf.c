/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Before 5.18: what is kept for a task goes with it. The kernel tells of this when the thread has run for the last time and
   its end has been taken note of, and before its memory becomes another's. */
#include "calls.h"

SEC("tp_btf/sched_process_free")
int BPF_PROG(on_free, struct task_struct *task)
{
    forget_of(threads, task);
    forget_of(calls, task);
    return 0;
}
