/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The few fields of the kernel's own types that the programs read. Where they lie is found out when the programs are
   loaded (CO-RE), so no copy of a kernel's headers is needed. */
#ifndef UHR_KERNEL_H
#define UHR_KERNEL_H

#include "abi.h"

typedef u8 __u8;
typedef u16 __u16;
typedef u32 __u32;
typedef s32 __s32;
typedef u64 __u64;
typedef s64 __s64;
typedef u16 __be16;
typedef u32 __be32;
typedef u32 __wsum;
typedef _Bool bool;
#define true 1
#define false 0

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#define CORE __attribute__((preserve_access_index))

enum { BPF_ANY = 0, BPF_NOEXIST = 1 };
enum {
    BPF_MAP_TYPE_HASH = 1,
    BPF_MAP_TYPE_ARRAY = 2,
    BPF_MAP_TYPE_PERCPU_ARRAY = 6,
    BPF_MAP_TYPE_LRU_HASH = 9,
    BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
    BPF_MAP_TYPE_RINGBUF = 27,
    BPF_MAP_TYPE_TASK_STORAGE = 29,
};
enum { BPF_F_MMAPABLE = 1024, BPF_F_NO_PREALLOC = 1, BPF_F_USER_STACK = 256, BPF_LOCAL_STORAGE_GET_F_CREATE = 1 };
enum { BPF_RB_NO_WAKEUP = 1, BPF_RB_AVAIL_DATA = 0, BPF_RB_RING_SIZE = 1 };

/* The registers as user space knows them: the context of perf_event programs has this layout by contract, so it is
   read plainly, never through CO-RE (the verifier would refuse it). */
struct pt_regs {
    u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};
struct bpf_perf_event_data {
    struct pt_regs regs;
    u64 sample_period;
    u64 addr;
};

struct ns_common { u32 inum; } CORE;
struct pid_namespace { struct ns_common ns; } CORE;
struct upid { s32 nr; struct pid_namespace *ns; } CORE;
struct pid { u32 level; struct upid numbers[1]; } CORE;
struct signal_struct { struct pid *pids[4]; } CORE;
struct kernfs_node { u64 id; } CORE;
struct cgroup { s32 level; struct kernfs_node *kn; struct cgroup *ancestors[1]; } CORE;
/* Before 6.1: ids instead of pointers. */
struct cgroup___ids { u64 ancestor_ids[1]; } CORE;
struct css_set { struct cgroup *dfl_cgrp; } CORE;
struct inode { u16 i_mode; } CORE;
struct file { struct inode *f_inode; } CORE;
struct fdtable { u32 max_fds; struct file **fd; } CORE;
struct files_struct { struct fdtable *fdt; } CORE;
struct sched_entity { u64 sum_exec_runtime; } CORE;
struct task_struct {
    void *stack;
    u32 flags;
    u32 __state;
    u32 on_cpu; /* one byte from 7.3 on: without a sign, for only such a load is made smaller by CO-RE */
    s32 pid, tgid;
    u32 in_iowait : 1;
    u64 min_flt, maj_flt;
    struct sched_entity se;
    struct task_struct *real_parent, *group_leader;
    struct pid *thread_pid;
    struct signal_struct *signal;
    struct css_set *cgroups;
    struct files_struct *files;
    char comm[16];
} CORE;
/* Before 5.14. */
struct task_struct___state { long state; } CORE;

enum { PF_KTHREAD = 0x00200000 };
enum { TASK_INTERRUPTIBLE = 1, TASK_UNINTERRUPTIBLE = 2, TASK_STOPPED_OR_TRACED = 12, TASK_DEAD = 0x80, TASK_WAKING = 0x200 };
enum { PIDTYPE_TGID = 1 };

/* Of x86-64 and arm64. */
#define TASK_STACK_BYTES 16384

struct seq_file;
struct bpf_iter_meta { struct seq_file *seq; u64 session_id; u64 seq_num; } CORE;
struct bpf_iter__task { struct bpf_iter_meta *meta; struct task_struct *task; } CORE;

/* The id of the cgroup on this level that a task is in; 0: none. */
static __always_inline u64 cgroup_of(struct task_struct *task, u32 level)
{
    struct cgroup *own = BPF_CORE_READ(task, cgroups, dfl_cgrp);
    if (!own || BPF_CORE_READ(own, level) < (s32)level) return 0;
    if (bpf_core_field_exists(own->ancestors)) {
        struct cgroup **ancestors = (void *)own + bpf_core_field_offset(struct cgroup, ancestors), *found = 0;
        if (bpf_probe_read_kernel(&found, sizeof found, ancestors + level) || !found) return 0;
        return BPF_CORE_READ(found, kn, id);
    }
    u64 id = 0, *ids = (void *)own + bpf_core_field_offset(struct cgroup___ids, ancestor_ids);
    bpf_probe_read_kernel(&id, sizeof id, ids + level);
    return id;
}

#endif
