//! What the kernel's functions on a stack tell of a wait: they know better than the system call's number whether a
//! `read` waits for a pipe or a disk, and they know the system call where its number was not seen.

use uhr_model::{WaitKind, syscall_of_kernel_function};

use crate::Table;
use crate::tables::OffCpu;

/// What one frame tells, or a stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KernelWait {
    /// What kind of thing is waited for.
    pub kind: Option<WaitKind>,
    /// The system call.
    pub syscall: Option<u32>,
    /// It is the scheduler itself: the wait is its caller's.
    pub is_scheduler: bool,
}

/// What the stack of a node tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeWait {
    /// What its frames tell, the innermost first.
    pub wait: KernelWait,
    /// The node that waits: its nearest that is not the scheduler.
    pub waits_at: u32,
}

/// The kernel's ways into the scheduler, by the beginning of their names.
const SCHEDULER: &[&str] = &["schedule", "__schedule", "preempt_schedule", "__cond_resched", "io_schedule"];

impl KernelWait {
    /// What a function of the kernel tells.
    pub fn of_function(name: &str) -> Self {
        Self {
            kind: WaitKind::of_kernel_function(name),
            syscall: syscall_of_kernel_function(name),
            is_scheduler: SCHEDULER.iter().any(|entry| name.starts_with(entry)),
        }
    }

    /// What two functions of one frame (inlined and not) tell together.
    pub fn or(self, outer: Self) -> Self {
        Self {
            kind: self.kind.or(outer.kind),
            syscall: self.syscall.or(outer.syscall),
            is_scheduler: self.is_scheduler || outer.is_scheduler,
        }
    }

    /// For each node of a stack tree, what its stack tells. `nodes` are the parent and the frame of each node but the
    /// first, parents before children; `of_frame` says what each frame tells.
    pub fn of_nodes(nodes: impl Iterator<Item = (u32, u32)>, of_frame: &[Self]) -> Vec<NodeWait> {
        let mut of_node = vec![NodeWait::default()];
        for (parent, frame) in nodes {
            let own = of_frame.get(frame as usize).copied().unwrap_or_default();
            let outer = of_node.get(parent as usize).copied().unwrap_or_default();
            // Nothing but the scheduler: then it is that.
            let is_below = own.is_scheduler && outer.waits_at != 0;
            let waits_at = if is_below { outer.waits_at } else { of_node.len() as u32 };
            of_node.push(NodeWait { wait: own.or(outer.wait), waits_at });
        }
        of_node
    }

    /// Tells the waits what their stacks tell, where they do not know it better, and ends their stacks at the function
    /// that waits: the scheduler below it is in all of them.
    pub fn tell(of_node: &[NodeWait], rows: &mut OffCpu) {
        for row in 0..rows.len() {
            let Some(NodeWait { wait: told, waits_at }) = of_node.get(rows.stack[row] as usize) else {
                continue;
            };
            rows.stack[row] = *waits_at;
            if rows.runnable[row] {
                continue;
            }
            let is_vague = matches!(
                WaitKind::from_code(rows.wait[row]),
                None | Some(WaitKind::Unknown | WaitKind::Other)
            );
            rows.syscall[row] = rows.syscall[row].or(told.syscall);
            let by_syscall = rows.syscall[row].map(WaitKind::of_syscall);
            if is_vague && let Some(kind) = told.kind.or(by_syscall) {
                rows.wait[row] = kind.code();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_function_that_says_something_counts() {
        // main > do_syscall_64 > ksys_read > pipe_read > schedule
        let names = ["main", "do_syscall_64", "ksys_read", "pipe_read", "schedule"];
        let of_frame: Vec<KernelWait> = names.iter().map(|name| KernelWait::of_function(name)).collect();
        let of_node = KernelWait::of_nodes((0..5).map(|node| (node, node)), &of_frame);
        assert_eq!((of_node[5].wait.kind, of_node[5].wait.syscall), (Some(WaitKind::Pipe), Some(0)));
        assert_eq!((of_node[5].waits_at, of_node[4].waits_at), (4, 4), "pipe_read waits, not the scheduler");
        assert_eq!(of_node[1].wait, KernelWait::default());
    }
}
