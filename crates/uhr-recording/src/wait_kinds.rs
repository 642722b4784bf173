//! What waits are told about themselves when the capture has ended: what kind they are, which system call it was, and
//! what kind of interrupt ended them.

use rustc_hash::FxHashMap;
use uhr_model::{Interrupt, WaitKind};

use crate::Table;
use crate::tables::OffCpu;
use crate::wait_hints::NodeHint;
use crate::waker_tree::WakerTree;

/// Everything that is known beside the rows themselves.
#[derive(Debug)]
pub struct WaitKinds {
    /// For each node of the stack tree, what its stack tells.
    pub of_node: Vec<NodeHint>,
    /// For nodes that an interrupt is on, the node of its part alone, where that is known.
    pub of_interrupt: FxHashMap<u32, u32>,
    /// For each thread, whether it is one of the kernel.
    pub is_kernel_thread: Vec<bool>,
}

impl WaitKinds {
    /// Tells the waits what their stacks tell, where they do not know it better, and ends their stacks at the function
    /// that waits: the scheduler below it is in all of them.
    pub fn tell(&self, rows: &mut OffCpu, wakers: &mut WakerTree) {
        for row in 0..rows.len() {
            let hint = self.of_node.get(rows.stack[row] as usize).copied().unwrap_or_default();
            rows.stack[row] = hint.waits_at;
            if rows.runnable[row] {
                continue;
            }
            rows.syscall[row] = rows.syscall[row].or(hint.syscall);
            let by_syscall = rows.syscall[row].map(WaitKind::of_syscall);
            let stored = WaitKind::from_code(rows.wait[row]).unwrap_or(WaitKind::Unknown);
            let is_kernel_thread = self.is_kernel_thread.get(rows.thread[row] as usize) == Some(&true);
            let kind = match stored {
                WaitKind::Unknown | WaitKind::Other => hint.kind.or(by_syscall).unwrap_or(stored),
                // Whoever cannot be interrupted and is in no system call has met a page fault, if it is a program's.
                WaitKind::PageFault if is_kernel_thread => hint.kind.unwrap_or(WaitKind::Unknown),
                known => known,
            };
            rows.wait[row] = or_idle(kind, by_syscall, &hint, is_kernel_thread).code();
            self.refine_waker(rows, row, wakers);
        }
    }

    /// Tells a thread that ended a wait from an interrupt, and names the kind of interrupt, from what ran: the recorder
    /// sees of an interrupt only which thread was running, and is not always sure that it is one.
    fn refine_waker(&self, rows: &mut OffCpu, row: usize, wakers: &mut WakerTree) {
        let (waker, stack) = (rows.waker[row], rows.waker_stack[row]);
        if waker == 0 {
            return;
        }
        let hint = self.of_node.get(stack as usize).copied().unwrap_or_default();
        rows.waker_stack[row] = hint.waits_at;
        let is_thread = match (wakers.thread_alone(waker), wakers.interrupt(waker)) {
            (Some(_), None) => !hint.in_interrupt,
            (Some(_), Some(_)) => stack != 0 && !hint.in_interrupt,
            (None, _) => false,
        };
        if is_thread {
            rows.waker[row] = wakers.thread_alone(waker).unwrap_or(waker);
            return;
        }
        let known = wakers.interrupt(waker).filter(|kind| *kind != Interrupt::Other);
        let kind = known.or(hint.interrupt).unwrap_or(Interrupt::Other);
        rows.waker[row] = wakers.interrupt_of(kind);
        wakers.saw(rows.thread[row], kind);
        let part = self.of_interrupt.get(&stack).copied().unwrap_or(stack);
        rows.waker_stack[row] = self.of_node.get(part as usize).map_or(part, |hint| hint.waits_at);
    }
}

/// The kind, or idle: an event loop or a server without work, a thread of a pool or of the kernel. Whoever has to
/// have something from a disk first has work.
fn or_idle(
    kind: WaitKind,
    by_syscall: Option<WaitKind>,
    hint: &NodeHint,
    is_kernel_thread: bool,
) -> WaitKind {
    if matches!(kind, WaitKind::Disk | WaitKind::PageFault) {
        return kind;
    }
    // A lock is held by somebody who works.
    let is_kernel = by_syscall.is_none() && hint.is_kernel && kind != WaitKind::Lock && is_kernel_thread;
    if by_syscall == Some(WaitKind::Idle) || is_kernel || hint.waits_for_work { WaitKind::Idle } else { kind }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::{OffCpuRow, WakerRow, Wakers};
    use crate::wait_hints::FrameHint;

    fn row(thread: u32, stack: u32, wait: WaitKind, syscall: Option<u32>) -> OffCpuRow {
        OffCpuRow {
            start_ns: 0,
            end_ns: 10,
            duration_ns: 10,
            weight_ns: 10,
            count: 1,
            thread,
            stack,
            ending: 0,
            runnable: false,
            wait: wait.code(),
            syscall,
            waker: 0,
            waker_stack: 0,
        }
    }

    /// Kinds for stacks of one function each, node 1 the first; thread 1 is one of the kernel.
    fn kinds(functions: &[FrameHint]) -> WaitKinds {
        let nodes = (0..functions.len() as u32).map(|frame| (0, frame));
        WaitKinds {
            of_node: NodeHint::of_nodes(nodes, functions),
            of_interrupt: FxHashMap::default(),
            is_kernel_thread: vec![false, true],
        }
    }

    fn told(kinds: &WaitKinds, row: OffCpuRow) -> WaitKind {
        let mut rows = OffCpu::default();
        rows.push(row);
        kinds.tell(&mut rows, &mut WakerTree::default());
        WaitKind::from_code(rows.wait[0]).unwrap()
    }

    #[test]
    fn waiting_for_work_is_idle_and_waiting_for_a_disk_is_not() {
        let worker = FrameHint::of_kernel_function("worker_thread");
        let disk = FrameHint::of_kernel_function("folio_wait_bit_common");
        let pool = FrameHint::of_user_function("ngx_thread_pool_cycle", false);
        let lock = FrameHint::of_user_function("take_turns", false);
        let kinds = kinds(&[worker, disk, pool, lock]);
        let cases = [
            (row(0, 0, WaitKind::Unknown, Some(232)), WaitKind::Idle), // epoll_wait
            (row(0, 0, WaitKind::Socket, Some(288)), WaitKind::Idle),  // accept4
            (row(0, 0, WaitKind::Disk, Some(426)), WaitKind::Disk),    // io_uring_enter
            (row(0, 0, WaitKind::Poll, Some(7)), WaitKind::Poll),      // poll
            (row(1, 1, WaitKind::Unknown, None), WaitKind::Idle),      // a kernel thread
            (row(1, 0, WaitKind::Unknown, None), WaitKind::Idle),      // without its stack
            (row(1, 1, WaitKind::PageFault, None), WaitKind::Idle),    // which cannot be interrupted
            (row(0, 1, WaitKind::PageFault, None), WaitKind::PageFault), // a program that cannot
            (row(1, 2, WaitKind::Unknown, None), WaitKind::Disk),      // one that reads
            (row(0, 1, WaitKind::Unknown, None), WaitKind::Unknown),   // no kernel thread
            (row(0, 3, WaitKind::Lock, Some(202)), WaitKind::Idle),    // a pool
            (row(0, 4, WaitKind::Lock, Some(202)), WaitKind::Lock),    // a lock
        ];
        for (row, kind) in cases {
            assert_eq!(told(&kinds, row.clone()), kind, "{row:?}");
        }
    }

    fn waker(id: u32, woken_by: Option<u32>, tid: Option<u32>, interrupt: Option<Interrupt>) -> WakerRow {
        let interrupt = interrupt.map(Interrupt::code);
        WakerRow { id, woken_by, thread: tid.map(|_| 0), pid: tid, tid, name: None, interrupt }
    }

    /// What ended a wait of thread 1: the row that is stored, and the function that ran.
    fn woken(row: WakerRow, function: &str) -> (Option<u32>, Option<Interrupt>) {
        let mut table = Wakers::default();
        table.push(waker(0, None, None, None));
        table.push(row);
        let mut wakers = WakerTree::new(&table).unwrap();
        let mut rows = OffCpu::default();
        let (waker, waker_stack) = (wakers.of(1), 1);
        rows.push(OffCpuRow { waker, waker_stack, ..self::row(1, 0, WaitKind::Lock, None) });
        kinds(&[FrameHint::of_kernel_function(function)]).tell(&mut rows, &mut wakers);
        let told = rows.waker[0];
        (wakers.rows()[told as usize].tid, wakers.interrupt(told))
    }

    #[test]
    fn what_ran_says_whether_it_was_an_interrupt_and_of_what_kind() {
        let (thread, other) = (Some(70), Some(Interrupt::Other));
        assert_eq!(woken(waker(1, None, None, other), "virtblk_done"), (None, Some(Interrupt::Block)));
        assert_eq!(woken(waker(1, None, None, other), "ttwu_do_activate"), (None, other));
        assert_eq!(woken(waker(1, None, thread, None), "pipe_write"), (thread, None));
        assert_eq!(woken(waker(1, None, thread, None), "asm_sysvec_apic_timer_interrupt"), (None, other));
        assert_eq!(woken(waker(1, None, thread, other), "asm_common_interrupt"), (None, other));
        assert_eq!(
            woken(waker(1, None, thread, other), "net_rx_action"),
            (thread, None),
            "sent by the thread"
        );
    }

    #[test]
    fn the_kind_that_woke_a_thread_is_known_along_its_chains_too() {
        let mut table = Wakers::default();
        table.push(waker(0, None, None, None));
        table.push(waker(1, None, None, Some(Interrupt::Other)));
        table.push(waker(2, Some(1), Some(70), None)); // Thread 0, which some interrupt had woken.
        let mut wakers = WakerTree::new(&table).unwrap();
        let mut rows = OffCpu::default();
        rows.push(OffCpuRow { waker: wakers.of(2), ..row(1, 0, WaitKind::Lock, None) });
        rows.push(OffCpuRow { waker: wakers.of(1), waker_stack: 1, ..row(0, 0, WaitKind::Sleep, None) });
        kinds(&[FrameHint::of_kernel_function("hrtimer_wakeup")]).tell(&mut rows, &mut wakers);
        wakers.settle();
        let woken_by = wakers.rows()[rows.waker[0] as usize].woken_by.unwrap();
        assert_eq!(wakers.interrupt(woken_by), Some(Interrupt::Timer));
    }
}
