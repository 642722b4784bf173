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
}

impl KernelWait {
    /// What a function of the kernel tells.
    pub fn of_function(name: &str) -> Self {
        Self { kind: WaitKind::of_kernel_function(name), syscall: syscall_of_kernel_function(name) }
    }

    /// What the innermost of two frames tells, and where it is silent the outer one.
    pub fn or(self, outer: Self) -> Self {
        Self { kind: self.kind.or(outer.kind), syscall: self.syscall.or(outer.syscall) }
    }

    /// For each node of a stack tree, what its stack tells. `nodes` are the parent and the frame of each node but the
    /// first, parents before children; `of_frame` says what each frame tells.
    pub fn of_nodes(nodes: impl Iterator<Item = (u32, u32)>, of_frame: &[Self]) -> Vec<Self> {
        let mut of_node = vec![Self::default()];
        for (parent, frame) in nodes {
            let own = of_frame.get(frame as usize).copied().unwrap_or_default();
            let outer = of_node.get(parent as usize).copied().unwrap_or_default();
            of_node.push(own.or(outer));
        }
        of_node
    }

    /// Tells the waits what their stacks tell, where they do not know it better.
    pub fn tell(of_node: &[Self], rows: &mut OffCpu) {
        for row in 0..rows.len() {
            let Some(told) = of_node.get(rows.stack[row] as usize).filter(|_| !rows.runnable[row]) else {
                continue;
            };
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
        assert_eq!(of_node[5], KernelWait { kind: Some(WaitKind::Pipe), syscall: Some(0) });
        assert_eq!(of_node[1], KernelWait::default());
    }
}
