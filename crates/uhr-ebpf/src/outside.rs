//! Stacks of waits on kernels whose programs cannot read another task's memory (before 5.18). The clock of waits brings the
//! kernel's part and the registers; the program's part is read from here, right behind the look. Whether the thread was
//! still in the same wait is known when that wait ends: it counts if it went on for longer than the read may take.

use std::io;

use uhr_model::Avma;
use uhr_unwind::{ProcessMemory, TargetMemory};

use crate::abi;
use crate::chance::Chance;
use crate::sampler::monotonic_ns;

/// Completes events, and keeps all until they are asked for.
#[derive(Debug)]
pub(crate) struct Outside {
    copy_bytes: usize,
    stack: Vec<u8>,
    /// One behind the other.
    events: Vec<u8>,
    lengths: Vec<usize>,
    /// Waits that do not count: reading took too long.
    pub(crate) late: u64,
    /// Waits that have only the kernel's part: we may not read the rest.
    pub(crate) refused: u64,
}

/// What became of a wait.
enum Wait {
    /// So many bytes of its stack were read.
    Read(usize),
    /// None can be. What the kernel said of the wait stands.
    Unreadable,
    /// It does not count.
    Over,
}

impl Outside {
    pub(crate) fn new(copy_bytes: u32) -> Self {
        let copy_bytes = copy_bytes.min(abi::MAX_COPY_BYTES) as usize;
        let stack = vec![0; copy_bytes];
        Self { copy_bytes, stack, events: Vec::new(), lengths: Vec::new(), late: 0, refused: 0 }
    }

    /// Takes in an event of the ring of stacks.
    pub(crate) fn take(&mut self, event: &[u8]) {
        let is_wait = |sample: &abi::Sample| {
            sample.head.kind == abi::WAIT_STACK && sample.flags & abi::FROM_OUTSIDE != 0
        };
        let wait = abi::read::<abi::Sample>(event)
            .filter(|(sample, _)| is_wait(sample) && sample.flags & abi::AT_SWITCH == 0);
        let Some((mut sample, payload)) = wait else { return self.keep(&[event]) };
        match self.read(&sample) {
            Wait::Over => self.late += 1,
            Wait::Unreadable => self.keep(&[event]),
            Wait::Read(bytes) => {
                sample.copied = bytes as u16;
                let frames = usize::from(sample.kernel_frames) * 8;
                let stack = std::mem::take(&mut self.stack);
                let frames = payload.get(..frames).unwrap_or_default();
                self.keep(&[abi::bytes(&sample), frames, stack.get(..bytes).unwrap_or_default()]);
                self.stack = stack;
            }
        }
    }

    fn read(&mut self, sample: &abi::Sample) -> Wait {
        let has_program = sample.flags & (abi::KERNEL_THREAD | abi::IS_32_BIT) == 0 && sample.sp != 0;
        if !has_program || self.copy_bytes == 0 {
            return Wait::Unreadable;
        }
        let memory = ProcessMemory::new(sample.head.tid);
        let read = memory.read(Avma(sample.sp), &mut self.stack);
        let is_late = monotonic_ns().saturating_sub(sample.head.time_ns) > Chance::LEAST_FROM_OUTSIDE_NS;
        match read {
            _ if is_late => Wait::Over,
            Ok(bytes) => Wait::Read(bytes),
            Err(error) if error.source.kind() == io::ErrorKind::PermissionDenied => {
                self.refused += 1;
                Wait::Unreadable
            }
            Err(_) => Wait::Unreadable,
        }
    }

    fn keep(&mut self, parts: &[&[u8]]) {
        let before = self.events.len();
        parts.iter().for_each(|part| self.events.extend_from_slice(part));
        self.lengths.push(self.events.len() - before);
    }

    /// Hands out what was taken in.
    pub(crate) fn hand_out(&mut self, sink: &mut dyn FnMut(&[u8])) {
        let mut rest = self.events.as_slice();
        for length in self.lengths.drain(..) {
            let (event, behind) = rest.split_at(length.min(rest.len()));
            sink(event);
            rest = behind;
        }
        self.events.clear();
    }
}
