/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* All programs as one object: they work on the same maps. Each file is one way into the kernel. */
#include "cpu.bpf.c"
#include "switch.bpf.c"
#include "tasks.bpf.c"
#include "look.bpf.c"
#include "calls.bpf.c"
#ifdef UHR_BEFORE_5_18
#include "free.bpf.c"
#endif

char LICENSE[] SEC("license") = "Dual MIT/GPL";
