//! Stacks of waiting threads, read from outside without stopping them.

use std::io;

use uhr_model::{Avma, CodeAddress, StackEnding, StackId, WaitKind};

use super::Pipeline;
use crate::procfs;
use crate::waits::WaitStack;
use uhr_unwind::{ProcessMemory, TargetMemory};

/// What became of an attempt to read stacks from outside.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OutsideReads {
    pub(crate) taken: u64,
    pub(crate) moved_on: u64,
    pub(crate) refused: u64,
}

impl Pipeline {
    /// Reads from outside the stacks of threads that have been waiting for a while without one.
    pub(crate) fn look_at_waiting(&mut self, now_ns: u64, longer_than_ns: u64, most: usize) -> OutsideReads {
        let mut reads = OutsideReads::default();
        let waiting: Vec<(u32, u32)> = self
            .tasks
            .threads()
            .filter(|thread| {
                let since = thread.time.waits_without_stack_since();
                !thread.has_no_events()
                    && since.is_some_and(|since| now_ns.saturating_sub(since) >= longer_than_ns)
            })
            .map(|thread| (thread.pid, thread.row.tid))
            .take(most)
            .collect();
        for (pid, tid) in waiting {
            // Kernel threads have no user stack to read.
            if self.tasks.process(pid, now_ns, &mut self.writer).row.executable.is_none() {
                continue;
            }
            match self.outside_stack(pid, tid, now_ns) {
                Ok(Some(stack)) => {
                    reads.taken += 1;
                    self.tasks
                        .thread(pid, tid, now_ns, &mut self.writer)
                        .time
                        .set_outside_stack(now_ns, stack);
                }
                Ok(None) => reads.moved_on += 1,
                Err(_) => {
                    reads.refused += 1;
                    let refused = WaitStack {
                        stack: StackId(0),
                        ending: StackEnding::NotPermitted,
                        syscall: None,
                        wait: WaitKind::Unknown,
                    };
                    self.tasks
                        .thread(pid, tid, now_ns, &mut self.writer)
                        .time
                        .set_outside_stack(now_ns, refused);
                }
            }
        }
        reads
    }

    /// The stack of a thread that is blocked now. It counts only if the thread is still blocked in the same place when
    /// the stack has been read.
    fn outside_stack(&mut self, pid: u32, tid: u32, now_ns: u64) -> io::Result<Option<WaitStack>> {
        let Some(blocked) = procfs::blocked_in(pid, tid)? else { return Ok(None) };
        self.know(pid, Avma(blocked.ip), now_ns);
        let memory = ProcessMemory::new(pid);
        let process = self.tasks.process(pid, now_ns, &mut self.writer);
        let mut word = [0; 8];
        memory.read(Avma(blocked.sp), &mut word).map_err(|error| error.source)?;
        let found =
            process.unwinder.unwind_blocked(Avma(blocked.ip), Avma(blocked.sp), &memory, &mut self.cache);
        if procfs::blocked_in(pid, tid)? != Some(blocked) {
            return Ok(None);
        }
        let space = &process.space;
        let frames = found
            .frames
            .iter()
            .rev()
            .map(|code| space.frame(code.lookup(), matches!(code, CodeAddress::Return(_))));
        let stack = self.interner.stack(tid, frames, &mut self.writer);
        let wait = blocked.syscall.map_or(WaitKind::PageFault, WaitKind::of_syscall);
        Ok(Some(WaitStack { stack, ending: found.ending, syscall: blocked.syscall, wait }))
    }
}
