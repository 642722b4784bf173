/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What the programs in the kernel and their reader agree on. The only other place that knows these layouts is
   src/abi.rs; both hold the sizes against each other (UHR_SIZE here, `const` assertions there). */
#ifndef UHR_ABI_H
#define UHR_ABI_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef short s16;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long long u64;
typedef long long s64;

#define UHR_SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type)

#define UHR_MAX_FRAMES 127      /* of the kernel, and again of the program */
/* Of the program, where the walk goes by rows: as many are kept, half of them from the leaf on and half from the root, */
#define UHR_MAX_WALK 1024 /* a power of two */
#define UHR_MAX_STEPS 8192 /* if the root is no farther than that (a step takes some 20 ns), */
#define UHR_MAX_WINDOWS 1024 /* nor lies more than 2 MiB above (a window takes some 150 ns) */
#define UHR_COPY 16384          /* bytes of stack */
#define UHR_MAX_COPY 61440      /* of a deeper one: whole pages, and as many as 16 bits can count */
#define UHR_PAGE 4096
#define UHR_LEAF_BYTES 64       /* of stack with a chain of frame pointers: where the caller of a function without a frame is */
#define UHR_SLOTS 12            /* kinds of wait that a thread keeps apart */
#define UHR_HOPS 3              /* wakers behind the waker */
#define UHR_CALLS 64            /* kinds of system call and outcome that a thread keeps apart; a power of two */
/* Reading a stack from outside takes some 10 us. A wait that is not longer is over before. */
#define UHR_SHORT_NS 50000
/* Before 5.18, where there is no storage for tasks: this many threads at most, and of so many system calls are counted. */
#define UHR_THREADS 32768
#define UHR_THREADS_WITH_CALLS 8192
#define UHR_NO_SYSCALL 0xffff

/* What an event tells. */
enum uhr_event_kind {
    UHR_CPU = 1,         /* struct uhr_sample: a tick of the clock met this thread on a CPU */
    UHR_FAULT = 2,       /* struct uhr_sample: it touched memory that was not there */
    UHR_WAIT_STACK = 3,  /* struct uhr_sample: it was seen waiting */
    UHR_WAKER_STACK = 4, /* struct uhr_sample: this is what the waker of `wait` of `wait_tid` was doing */
    UHR_WOKEN = 5,       /* struct uhr_woken: the wait of which the stack was taken has ended; by whom */
    UHR_WAIT_END = 6,    /* struct uhr_wait_end: the thread runs again */
    UHR_TIMES = 7,       /* struct uhr_times: the sums of a thread so far */
    UHR_THREAD_END = 8,  /* struct uhr_times: its last */
    UHR_RENAMED = 9,     /* struct uhr_times: it gets a new name, perhaps because it executes a program */
    UHR_COUNTED = 10,    /* struct uhr_calls: the sums of its system calls so far */
    UHR_EVENT_KINDS
};

struct uhr_head {
    u32 kind;
    u32 cpu;
    u64 time_ns; /* CLOCK_MONOTONIC */
    u32 pid;     /* of the namespace that uhr runs in; 0: not in it */
    u32 tid;
};
UHR_SIZE(struct uhr_head, 24);

/* Flags of a sample. */
enum uhr_sample_flag {
    UHR_IN_KERNEL = 1,
    UHR_CHAIN_FULL = 2,    /* more frames than fit */
    UHR_32_BIT = 4,
    UHR_KERNEL_THREAD = 8, /* there is no program */
    UHR_MAJOR = 16,        /* a fault that waited for a disk */
    UHR_CHAIN = 32,        /* frame pointers were followed; otherwise the stack was copied */
    UHR_AT_SWITCH = 64,    /* of a wait: it was taken as the thread began to wait, not by the clock */
    UHR_WALKED = 128,      /* the frames were found by rows, and `ending` says how far */
    UHR_FROM_OUTSIDE = 256, /* of a wait: on this kernel the clock sees the program's stack a little later, from outside */
};

/* How a walk by rows ended. */
enum uhr_ending {
    UHR_ON_ITS_WAY = 0, /* there are more steps to the root than are made */
    UHR_FIRST = 1,      /* at the thread's first function */
    UHR_UNREADABLE = 2, /* the stack is not in memory */
    UHR_GAVE_UP = 3,    /* from here on: the stack is copied instead */
    UHR_NO_SPACE = 3,   /* the process, or the program that it executes now, is not known yet */
    UHR_NOT_YET = 4,    /* nor are the rows of this file */
    UHR_UNKNOWN_CODE = 5,
    UHR_UNCOVERED = 6,  /* no row, and no frame pointers */
    UHR_COMPLEX = 7,    /* its row does not fit into this form */
    UHR_BP_LOST = 8,
    UHR_NO_PROGRESS = 9,
    UHR_GENERATED = 10, /* code that a program has made, which may keep frame pointers or not */
    UHR_ENDINGS
};

/* In a frame found by rows: this is an instruction, not a return address; it was found by a frame pointer. */
#define UHR_INSTRUCTION (1ull << 63)
#define UHR_FROM_BP (1ull << 62)

/* A stack, and what was known when it was taken. Behind it lie `kernel_frames` and `user_frames` addresses of 8 bytes,
   leaf first, and `copied` bytes of stack from `sp` on. */
struct uhr_sample {
    struct uhr_head head;
    u64 ip, sp, bp; /* user registers, 0 without a program */
    u64 address;    /* of a fault; otherwise the period of the clock (of CPUs, of waits) in ns */
    u64 as_of_ns;   /* of a walk: `as_of_ns` of the mappings that it went by */
    u32 wait;       /* number of the wait, of those of this thread or of `wait_tid` */
    u32 wait_tid;
    u16 kernel_frames;
    u16 user_frames;
    u16 copied;
    u16 ending; /* enum uhr_ending */
    u16 syscall;
    u16 flags;
    u32 share; /* of a wait: as in struct uhr_dial */
    u32 left_out; /* frames between the two halves. The second is a ring then, and begins at this number, modulo its length. */
    u32 unused;
};
UHR_SIZE(struct uhr_sample, 96);

struct uhr_task {
    u32 pid;
    u32 tid;
};

/* `head` is of the thread that was woken. */
struct uhr_woken {
    struct uhr_head head;
    u32 wait;
    u32 is_interrupt;               /* it looks as if an interrupt did it, while the waker ran */
    struct uhr_task waker;
    struct uhr_task hops[UHR_HOPS]; /* who had ended the waker's last wait, and so on; tid 0: not known, ~0: an interrupt */
    char name[16];                 /* of the waker */
};
UHR_SIZE(struct uhr_woken, 80);

/* How a thread waits, as the scheduler has it. */
enum uhr_how {
    UHR_INTERRUPTIBLE = 0,
    UHR_UNINTERRUPTIBLE = 1,
    UHR_DISK = 2,    /* uninterruptible, and the kernel counts it as waiting for a disk */
    UHR_STOPPED = 3, /* by a signal or a debugger */
};

/* What the file is that a thread reads or writes. */
enum uhr_file {
    UHR_FILE_UNKNOWN = 0,
    UHR_FILE_PIPE = 1,
    UHR_FILE_SOCKET = 2,
    UHR_FILE_DISK = 3,
    UHR_FILE_DEVICE = 4,
    UHR_FILE_OTHER = 5, /* eventfd, timerfd, inotify and the like */
    UHR_SHORT = 0x80,   /* and the wait was shorter than UHR_SHORT_NS: a sum of its own, for the clock does not see those */
};

/* Why a thread waits: slots with the same why are one sum. */
struct uhr_why {
    u16 syscall; /* UHR_NO_SYSCALL: none */
    u8 how;
    u8 file;
};
UHR_SIZE(struct uhr_why, 4);

struct uhr_wait_end {
    struct uhr_head head; /* `time_ns`: when it ran again */
    u64 since_ns;
    u64 woken_ns; /* 0: nobody was seen to wake it */
    u32 wait;
    struct uhr_why why;
};
UHR_SIZE(struct uhr_wait_end, 48);

struct uhr_slot {
    u64 ns;
    u32 count;
    struct uhr_why why;
};
UHR_SIZE(struct uhr_slot, 16);

enum uhr_state {
    UHR_UNSEEN = 0,
    UHR_RUNNING = 1,
    UHR_RUNNABLE = 2,
    UHR_WAITING = 3,
};

/* The sums of a thread since it was first seen, and what it does since `since_ns`. The last slot also takes what finds
   no slot of its own; `crowded` counts that. */
struct uhr_times {
    struct uhr_head head;
    u64 since_ns;
    u64 woken_ns;
    u64 on_cpu_ns;
    u64 runqueue_ns;
    u64 minor_faults; /* since the thread began */
    u64 major_faults;
    u32 switches;
    u32 crowded;
    u32 unwoken; /* waits that ended without a waker */
    struct uhr_why why;
    u32 wait;
    u32 state;
    struct uhr_slot slots[UHR_SLOTS];
};
UHR_SIZE(struct uhr_times, 288);

/* System calls of one kind that ended in one way. */
struct uhr_call {
    u64 ns;    /* their length, where that is measured */
    u32 count; /* 0: the slot is free */
    u16 syscall;
    u16 error; /* errno; 0: it succeeded */
};
UHR_SIZE(struct uhr_call, 16);

/* The system calls of a thread since they are counted. `others` takes what finds no slot. */
struct uhr_calls {
    struct uhr_head head;
    u64 began_ns; /* when counting them began: which sums these are, whatever the thread is called by now */
    u64 since_ns; /* 0, or since when it has been in `syscall` */
    u64 ran_ns;   /* time on CPU between the first and the last call that ended in the present window */
    u32 syscall;
    u32 count;    /* all that ended */
    u32 is_last;  /* the thread ends */
    u32 unused;
    struct uhr_call others;
    struct uhr_call calls[UHR_CALLS];
};
UHR_SIZE(struct uhr_calls, 1104);

/* What the programs count, per CPU. */
struct uhr_counters {
    u64 ticks;         /* of the clock, those of an idle CPU included */
    u64 idle;
    u64 samples;       /* ticks that met a thread of the target */
    u64 foreign;       /* ticks that met another thread */
    u64 faults;
    u64 refused[11];   /* by kind of event: the ring was full */
    u64 no_storage;    /* threads that there was no memory for */
    u64 torn;          /* sums that changed while they were read; they come with the next reading */
    u64 looked;        /* waits whose stack was taken */
    u64 moved_on;      /* waits that ended meanwhile */
    u64 postponed;     /* looks that stopped before the last thread */
    u64 waits;         /* that began */
    u64 unseen_wakers; /* whose stack was not taken, for there were too many at once */
    u64 walks[13];     /* by ending */
    u64 place;         /* where the last wake-up ran, for the programs' own use */
    u64 moment;        /* in which `wakers` stacks of wakers were taken, likewise */
    u64 wakers;
};
UHR_SIZE(struct uhr_counters, 312);

/* Rows of call frame information. A word is one row: bits 0 to 15 the offset of its first byte in the page, 16 to 23 the form,
   24 to 47 where the canonical frame address (CFA) is, 48 to 63 where the caller's rbp is; both signed, in words of 8 bytes. */
#define UHR_PAGE_BITS 9 /* pages of code of 512 bytes: some 10 rows each */
#define UHR_ROW_STEPS 7 /* of the search: a page has less than 2^7 rows */
enum uhr_row {
    UHR_ROW_NONE = 0,    /* no call frame information */
    UHR_ROW_SP = 1,      /* CFA: above rsp; rbp: above the CFA, 0 for unchanged */
    UHR_ROW_BP = 2,      /* CFA: above rbp; the same */
    UHR_ROW_SAVED = 3,   /* CFA: in the word above rbp; rbp: above rbp */
    UHR_ROW_PLT = 4,     /* CFA: 16 above rsp from this byte of 16 on, 8 before */
    UHR_ROW_SIGNAL = 5,  /* a signal's frame */
    UHR_ROW_FIRST = 6,   /* nobody called this */
    UHR_ROW_COMPLEX = 7,
    /* Rows of aarch64 code, which no program here walks by yet. The form has these bits; 24 to 43 say how far above sp the
       CFA is, 44 to 63 how far below it the return address is saved, or else x29; both unsigned, in words of 8 bytes. */
    UHR_ROW_A64 = 8,
    UHR_ROW_A64_FROM_FP = 16,        /* the CFA is above x29 */
    UHR_ROW_A64_RETURN_ADDRESS = 32, /* is saved; otherwise it is in x30 */
    UHR_ROW_A64_FP = 64,             /* x29 is saved: in the word below the return address, where that is saved too */
    UHR_ROW_A64_SIGNED = 128,        /* pointer authentication: the return address has more than address bits */
};
#define UHR_BP_NOWHERE (-32768)

/* Rows, and the index of each table: a word for each of its pages, with the number of the first row's word below and how
   many they are above. They lie in chunks of words; a page's rows in one. A page begins with a row. */
#define UHR_CHUNK_WORDS (1 << 17)
#define UHR_CHUNKS 128 /* of 1 MiB */
#define UHR_TABLES 4096
struct uhr_table {
    u64 start; /* stated address of the first page */
    u32 pages;
    u32 index; /* number of the first word of the index */
};
UHR_SIZE(struct uhr_table, 16);

/* How to walk out of code. */
enum uhr_walk_by {
    UHR_BY_NOTHING = 0, /* its rows are not there yet */
    UHR_BY_ROWS = 1,
    UHR_BY_FRAME_POINTERS = 2, /* where there is no row */
    UHR_BY_READING_CODE = 4,   /* which user space can do */
};

/* An executable mapping. */
#define UHR_CODES 131072
#define UHR_CODE_STEPS 12 /* of the search: a process has at most 2^12 of them */
struct uhr_code {
    u64 start, end;
    u64 bias; /* of addresses over stated addresses */
    u64 root; /* what the first function of a goroutine returns to, in code of Go; 0: not known */
    u32 table;
    u32 how;  /* enum uhr_walk_by */
};
UHR_SIZE(struct uhr_code, 40);

/* Those of a process. */
struct uhr_space {
    u64 as_of_ns; /* what executed a program later is another one */
    u32 first, count;
    u32 version; /* of all that were ever written another one */
    u32 is_deep; /* its stacks were seen to be larger than UHR_COPY, where they had to be copied */
};
UHR_SIZE(struct uhr_space, 24);

/* Which threads are recorded. */
enum uhr_scope {
    UHR_MARKED = 0,  /* those that the marking pass found, and what they make */
    UHR_MACHINE = 1, /* all */
    UHR_CGROUP = 2,  /* those in a cgroup */
};

/* What the loader decides before the programs run. */
struct uhr_settings {
    u64 cgroup;        /* its id */
    u64 pid_namespace; /* inode number of uhr's; 0: it is the first, and pids are the kernel's own */
    u32 cgroup_level;  /* how deep it lies */
    u32 scope;
    u32 copy_bytes;    /* of stack, with a sample; of a deeper one, UHR_MAX_COPY */
    u32 follow_frame_pointers; /* instead of copying the stack */
    u32 walks_by_rows; /* where it does neither, if it can */
    u32 copies_too;    /* with a walk also the copy, to check it */
    u32 looks_a_pass;  /* stacks of waits taken in one pass, at most */
    u32 measures_calls; /* system calls are counted and measured all the time */
    u64 calibration;   /* a getppid with this argument is uhr's own, which measures what counting costs a call */
};
UHR_SIZE(struct uhr_settings, 56);

/* What the loader changes while the programs run. */
struct uhr_dial {
    u64 start_ns;  /* when recording began: what a marked thread does, it has done since then */
    u64 period_ns; /* of the clock that looks at waiting threads */
    u64 pass_ns;   /* when the present look began */
    u32 taken;     /* stacks that this pass has taken */
    u32 share;     /* of waits whose stack is taken as they begin, of 2^32 - 1 */
    u32 counting;  /* 0, or the number of the window in which system calls are counted now */
    u32 unused;
};
UHR_SIZE(struct uhr_dial, 40);

/* Places in the order of the iterator that looks at waiting threads. */
struct uhr_cursor {
    u64 from; /* where this pass began */
    u64 next; /* where the next one does; 0: this one came to the end */
};
UHR_SIZE(struct uhr_cursor, 16);

#endif
