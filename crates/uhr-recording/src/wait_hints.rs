//! What the functions on a stack tell of a wait. Those of the kernel know better than the system call's number whether a
//! `read` waits for a pipe or a disk, and they know the system call where its number was not seen, and what kind of
//! interrupt ended a wait. Those of the program know whether a thread of a pool waits for work.

use uhr_model::{Interrupt, PoolPart, WaitKind, syscall_of_kernel_function};

/// What one frame tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FrameHint {
    /// What kind of thing is waited for.
    pub kind: Option<WaitKind>,
    /// The system call.
    pub syscall: Option<u32>,
    /// It is the scheduler itself: the wait is its caller's.
    pub is_scheduler: bool,
    /// What kind of interrupt it runs in.
    pub interrupt: Option<Interrupt>,
    /// What it is to an interrupt.
    pub interrupt_part: InterruptPart,
    /// It is code of the kernel.
    pub is_kernel: bool,
    /// What it is to a pool.
    pub pool: PoolPart,
}

/// Where a function stands between a thread and an interrupt.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum InterruptPart {
    /// It runs in what its caller runs in.
    #[default]
    Within,
    /// An interrupt begins: its callers were interrupted.
    Begins,
    /// What interrupts left for later begins; in an interrupt or in a thread.
    Continues,
    /// The thread goes on.
    Leaves,
}

impl InterruptPart {
    fn of_function(name: &str) -> Self {
        if Interrupt::begins_at(name) {
            Self::Begins
        } else if Interrupt::is_continued_at(name) {
            Self::Continues
        } else if Interrupt::is_left_at(name) {
            Self::Leaves
        } else {
            Self::Within
        }
    }

    /// Whether what called it has nothing to do with what it does.
    pub(crate) fn has_own_cause(self) -> bool {
        matches!(self, Self::Begins | Self::Continues)
    }
}

/// What the stack of a node tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeHint {
    /// What kind of thing is waited for: the innermost function that says so.
    pub kind: Option<WaitKind>,
    /// The system call: the outermost function that says so, because a call's entry calls what others call too.
    pub syscall: Option<u32>,
    /// What kind of interrupt it was, if one ran: the innermost function that says so.
    pub interrupt: Option<Interrupt>,
    /// Whether an interrupt ran, and not the thread.
    pub in_interrupt: bool,
    /// Whether all of it is code of the kernel.
    pub is_kernel: bool,
    /// Whether it is a thread of a pool that waits for work.
    pub waits_for_work: bool,
    /// Whether it is the scheduler, or what that calls.
    pub in_scheduler: bool,
    /// The node that waits, or that wakes: its nearest that is not the scheduler.
    pub waits_at: u32,
}

/// The kernel's ways into the scheduler, by the beginning of their names: to leave a CPU, and to wake a thread. What they
/// call is the recorder's own program, where that took the stack.
const SCHEDULER: &[&str] =
    &["schedule", "__schedule", "preempt_schedule", "__cond_resched", "io_schedule", "try_to_wake_up"];

impl FrameHint {
    /// What a function of the kernel tells.
    pub fn of_kernel_function(name: &str) -> Self {
        Self {
            kind: WaitKind::of_kernel_function(name),
            syscall: syscall_of_kernel_function(name),
            is_scheduler: SCHEDULER.iter().any(|entry| name.starts_with(entry)),
            interrupt: Interrupt::of_kernel_function(name),
            interrupt_part: InterruptPart::of_function(name),
            ..Self::OF_KERNEL
        }
    }

    /// What any function of the kernel tells.
    pub const OF_KERNEL: Self = Self {
        kind: None,
        syscall: None,
        is_scheduler: false,
        interrupt: None,
        interrupt_part: InterruptPart::Within,
        is_kernel: true,
        pool: PoolPart::Waits,
    };

    /// What any function of the C library tells.
    pub const OF_LIBC: Self = Self { is_kernel: false, ..Self::OF_KERNEL };

    /// What a function of a program tells. `in_libc` says that it is one of the C library's.
    pub fn of_user_function(name: &str, in_libc: bool) -> Self {
        Self { pool: PoolPart::of_function(name, in_libc), ..Self::default() }
    }

    /// What two functions of one frame tell together: this one was inlined into `outer`.
    pub fn inlined_into(self, outer: Self) -> Self {
        Self {
            kind: self.kind.or(outer.kind),
            syscall: outer.syscall.or(self.syscall),
            is_scheduler: self.is_scheduler || outer.is_scheduler,
            interrupt: self.interrupt.or(outer.interrupt),
            interrupt_part: match self.interrupt_part {
                InterruptPart::Within => outer.interrupt_part,
                own => own,
            },
            is_kernel: self.is_kernel && outer.is_kernel,
            pool: self.pool.called_by(outer.pool),
        }
    }
}

impl NodeHint {
    /// Tells rows which system call they were in, where they do not know it better, by their nodes.
    pub fn tell_syscalls(of_node: &[Self], nodes: &[u32], syscalls: &mut [Option<u32>]) {
        for (syscall, &node) in syscalls.iter_mut().zip(nodes) {
            *syscall = syscall.or_else(|| of_node.get(node as usize)?.syscall);
        }
    }

    /// For each node of a stack tree, what its stack tells. `nodes` are the parent and the frame of each node but the
    /// first, parents before children; `of_frame` says what each frame tells.
    pub fn of_nodes(nodes: impl Iterator<Item = (u32, u32)>, of_frame: &[FrameHint]) -> Vec<Self> {
        let mut of_node = vec![Self { is_kernel: true, ..Self::default() }];
        let mut pools = vec![PoolPart::Opaque];
        for (parent, frame) in nodes {
            let own = of_frame.get(frame as usize).copied().unwrap_or_default();
            let outer = of_node.get(parent as usize).copied().unwrap_or_default();
            let pool = own.pool.called_by(pools.get(parent as usize).copied().unwrap_or_default());
            // Nothing but the scheduler: then it is that.
            let in_scheduler = own.is_scheduler || (outer.in_scheduler && own.is_kernel);
            let is_below = in_scheduler && outer.waits_at != 0;
            of_node.push(Self {
                kind: own.kind.or(outer.kind),
                syscall: outer.syscall.or(own.syscall),
                interrupt: own.interrupt.or(outer.interrupt.filter(|_| !own.interrupt_part.has_own_cause())),
                in_interrupt: match own.interrupt_part {
                    InterruptPart::Begins => true,
                    InterruptPart::Leaves => false,
                    InterruptPart::Within | InterruptPart::Continues => own.is_kernel && outer.in_interrupt,
                },
                is_kernel: own.is_kernel && outer.is_kernel,
                waits_for_work: pool == PoolPart::Loop,
                in_scheduler,
                waits_at: if is_below { outer.waits_at } else { of_node.len() as u32 },
            });
            pools.push(pool);
        }
        of_node
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a stack of kernel functions tells, from the outermost to the leaf.
    fn of_stack(names: &[&str]) -> Vec<NodeHint> {
        let of_frame: Vec<FrameHint> = names.iter().map(|name| FrameHint::of_kernel_function(name)).collect();
        NodeHint::of_nodes((0..names.len() as u32).map(|node| (node, node)), &of_frame)
    }

    #[test]
    fn the_innermost_function_that_says_something_counts() {
        let of_node = of_stack(&["entry", "do_syscall_64", "ksys_read", "pipe_read", "schedule"]);
        assert_eq!((of_node[5].kind, of_node[5].syscall), (Some(WaitKind::Pipe), Some(0)));
        assert_eq!((of_node[5].waits_at, of_node[4].waits_at), (4, 4), "pipe_read waits, not the scheduler");
        assert_eq!((of_node[1].kind, of_node[1].syscall), (None, None));
    }

    #[test]
    fn what_the_scheduler_calls_neither_waits_nor_wakes() {
        let of_node =
            of_stack(&["ksys_read", "pipe_read", "schedule", "__schedule", "bpf_trace_run4", "unknown"]);
        assert_eq!(of_node[6].waits_at, 2);
        let of_node = of_stack(&["do_futex", "futex_wake", "try_to_wake_up", "bpf_trace_run1"]);
        assert_eq!(of_node[4].waits_at, 2);
    }

    #[test]
    fn the_entry_says_which_system_call_it_is() {
        let of_node =
            of_stack(&["__x64_sys_clock_nanosleep", "hrtimer_nanosleep", "do_nanosleep", "schedule"]);
        assert_eq!(of_node[4].syscall, Some(230), "nanosleep sleeps in the same function");
    }

    #[test]
    fn what_was_interrupted_is_not_the_cause() {
        let of_node = of_stack(&["tcp_sendmsg", "asm_sysvec_call_function", "try_to_wake_up"]);
        assert_eq!(of_node[3].interrupt, None);
        let of_node = of_stack(&["tcp_sendmsg", "asm_sysvec_apic_timer_interrupt", "hrtimer_wakeup"]);
        assert_eq!(of_node[3].interrupt, Some(Interrupt::Timer));
    }

    #[test]
    fn packets_to_a_neighbour_are_sent_by_the_thread() {
        let entry = ["asm_common_interrupt", "handle_softirqs", "net_rx_action", "sock_def_readable"];
        assert!(of_stack(&entry)[4].in_interrupt);
        let call = ["__x64_sys_sendto", "__local_bh_enable_ip", "handle_softirqs", "net_rx_action"];
        let of_node = of_stack(&call);
        assert!(!of_node[4].in_interrupt);
        assert_eq!(of_node[4].interrupt, Some(Interrupt::Network));
        let signal = ["asm_sysvec_reschedule_ipi", "irqentry_exit_to_user_mode", "do_signal", "do_exit"];
        assert!(!of_stack(&signal)[4].in_interrupt, "the thread does that itself");
    }
}
