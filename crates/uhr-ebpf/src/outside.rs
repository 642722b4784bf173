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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, SampleKind};

    const STACK: [u8; 256] = [7; 256];
    const KERNEL: [u8; 16] = [1; 16];

    /// A wait of ours that the clock met, with two frames of the kernel.
    fn wait(time_ns: u64) -> abi::Sample {
        let bytes = vec![0; size_of::<abi::Sample>()];
        let (mut sample, _) = abi::read::<abi::Sample>(&bytes).unwrap();
        sample.head.kind = abi::WAIT_STACK;
        (sample.head.tid, sample.head.time_ns) = (std::process::id(), time_ns);
        sample.sp = STACK.as_ptr() as u64;
        sample.flags = abi::IN_KERNEL | abi::FROM_OUTSIDE;
        sample.kernel_frames = 2;
        sample
    }

    fn taken(outside: &mut Outside, sample: &abi::Sample) -> Vec<Vec<u8>> {
        outside.take(&[abi::bytes(sample), &KERNEL].concat());
        let mut events = Vec::new();
        outside.hand_out(&mut |event| events.push(event.to_vec()));
        events
    }

    #[test]
    fn a_wait_gets_the_stack_of_its_program() {
        let mut outside = Outside::new(STACK.len() as u32);
        let events = taken(&mut outside, &wait(monotonic_ns()));
        let Some(Event::Sample(sample)) = Event::parse(&events[0]) else { panic!("{events:?}") };
        assert!(matches!(sample.kind, SampleKind::Wait { .. }));
        assert_eq!((sample.kernel, sample.stack), (&KERNEL[..], &STACK[..]));
        assert!(taken(&mut outside, &wait(monotonic_ns())).len() == 1, "what was handed out is gone");
    }

    #[test]
    fn what_may_have_been_read_after_the_wait_does_not_count() {
        let mut outside = Outside::new(STACK.len() as u32);
        let late = wait(monotonic_ns() - 2 * Chance::LEAST_FROM_OUTSIDE_NS);
        assert!(taken(&mut outside, &late).is_empty());
        assert_eq!(outside.late, 1);
    }

    #[test]
    fn everything_else_stays_as_it_is() {
        let mut outside = Outside::new(STACK.len() as u32);
        let there = wait(monotonic_ns());
        let mut on_cpu = there;
        on_cpu.head.kind = abi::CPU;
        let drawn = abi::Sample { flags: there.flags | abi::AT_SWITCH, ..there };
        let of_kernel = abi::Sample { flags: there.flags | abi::KERNEL_THREAD, ..there };
        let unmapped = abi::Sample { sp: 8, ..there };
        for sample in [on_cpu, drawn, of_kernel, unmapped] {
            assert_eq!(taken(&mut outside, &sample), [[abi::bytes(&sample), &KERNEL].concat()]);
        }
        outside.take(b"short");
        assert_eq!((outside.late, outside.refused), (0, 0));
    }
}
