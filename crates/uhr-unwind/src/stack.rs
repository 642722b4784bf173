#![forbid(unsafe_code)]
//! Where the unwinder reads stack words: a copy, and behind it, for a thread that stands still, the memory itself.

use uhr_model::{Avma, StackEnding};

use super::memory::TargetMemory;

/// A copy of the stack from the stack pointer upwards.
#[derive(Clone, Copy, Debug)]
pub struct StackCopy<'a> {
    /// The address of the first byte: the stack pointer.
    pub start: Avma,
    /// The bytes.
    pub bytes: &'a [u8],
}

/// Why a frame's caller was not found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Miss {
    /// A word is needed that lies above the copy.
    AboveCopy,
    /// A word is needed that cannot be read.
    Unreadable,
    /// The rule counts from a register whose value is not known.
    UnknownRegister,
    /// The rule makes no sense.
    BadRule,
}

impl Miss {
    pub(super) fn ending(self) -> StackEnding {
        match self {
            Self::AboveCopy => StackEnding::CopyTooShort,
            Self::Unreadable => StackEnding::MemoryUnreadable,
            Self::UnknownRegister | Self::BadRule => StackEnding::NoUnwindInfo,
        }
    }
}

const PAGE: u64 = 4096;

/// The words of one stack.
pub(super) struct StackWords<'a> {
    copy: StackCopy<'a>,
    /// The memory behind the copy; `None` for a thread that has moved on since.
    live: Option<&'a dyn TargetMemory>,
    /// The page of `live` that was read last; pages are read whole, because a system call costs more than a page.
    page: Option<(u64, Box<[u8; PAGE as usize]>)>,
}

impl<'a> StackWords<'a> {
    pub(super) fn of_copy(copy: StackCopy<'a>) -> Self {
        Self { copy, live: None, page: None }
    }

    pub(super) fn of_still_thread(sp: u64, live: &'a dyn TargetMemory) -> Self {
        Self { copy: StackCopy { start: Avma(sp), bytes: &[] }, live: Some(live), page: None }
    }

    /// The word at `address`.
    pub(super) fn word(&mut self, address: u64) -> Result<u64, Miss> {
        if let Some(offset) = address.checked_sub(self.copy.start.0)
            && let Ok(at) = usize::try_from(offset)
            && let Some(bytes) = self.copy.bytes.get(at..).and_then(|rest| rest.first_chunk())
        {
            return Ok(u64::from_le_bytes(*bytes));
        }
        match self.live {
            Some(live) => self.live_word(live, address),
            None if address < self.copy.start.0 => Err(Miss::Unreadable),
            None => Err(Miss::AboveCopy),
        }
    }

    fn live_word(&mut self, live: &dyn TargetMemory, address: u64) -> Result<u64, Miss> {
        let start = address & !(PAGE - 1);
        let within = (address - start) as usize;
        if within > (PAGE - 8) as usize {
            let mut bytes = [0; 8];
            let got = live.read(Avma(address), &mut bytes).map_err(|_| Miss::Unreadable)?;
            return if got == 8 { Ok(u64::from_le_bytes(bytes)) } else { Err(Miss::Unreadable) };
        }
        if self.page.as_ref().is_none_or(|(at, _)| *at != start) {
            let mut bytes = Box::new([0; PAGE as usize]);
            let got = live.read(Avma(start), &mut bytes[..]).map_err(|_| Miss::Unreadable)?;
            if got != bytes.len() {
                return Err(Miss::Unreadable);
            }
            self.page = Some((start, bytes));
        }
        let word = self.page.as_ref().and_then(|(_, bytes)| bytes[within..].first_chunk());
        word.map(|bytes| u64::from_le_bytes(*bytes)).ok_or(Miss::Unreadable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_says_on_which_side_a_word_is_missing() {
        let bytes = [1, 0, 0, 0, 0, 0, 0, 0, 2];
        let mut words = StackWords::of_copy(StackCopy { start: Avma(0x1000), bytes: &bytes });
        assert_eq!(words.word(0x1000), Ok(1));
        assert_eq!(words.word(0x1001), Ok(2 << 56));
        assert_eq!(words.word(0x1002), Err(Miss::AboveCopy));
        assert_eq!(words.word(u64::MAX), Err(Miss::AboveCopy));
        assert_eq!(words.word(0xff8), Err(Miss::Unreadable));
    }

    #[test]
    fn a_still_thread_is_read_where_it_is() {
        let memory = crate::ProcessMemory::new(std::process::id());
        let values: Vec<u64> = (0..2000).collect();
        let at = values.as_ptr() as u64;
        let mut words = StackWords::of_still_thread(at, &memory);
        for index in 0..2000 {
            assert_eq!(words.word(at + index * 8), Ok(index));
        }
        assert_eq!(words.word(16), Err(Miss::Unreadable));
    }
}
