#![forbid(unsafe_code)]
//! What executable memory a process has, and which file it came from.

use std::ops::Range;
use std::sync::Arc;

use uhr_model::{Avma, FileOffset};

use super::module::UnwindModule;

/// One executable mapping.
#[derive(Clone, Debug)]
pub(super) struct Mapping {
    start: u64,
    end: u64,
    /// What was added to the stated addresses of `module`.
    bias: u64,
    /// `None` for generated code, and for files that are not ELF.
    module: Option<Arc<UnwindModule>>,
}

impl Mapping {
    fn is_same(&self, other: &Self) -> bool {
        let module = |mapping: &Self| mapping.module.as_ref().map(|module| module.id());
        (self.start, self.end, self.bias, module(self)) == (other.start, other.end, other.bias, module(other))
    }

    pub(super) fn module(&self) -> Option<&UnwindModule> {
        self.module.as_deref()
    }

    /// Where the module states that the byte at an address of the process is.
    pub(super) fn stated(&self, address: u64) -> u64 {
        address.wrapping_sub(self.bias)
    }
}

/// One executable mapping, as others see it.
#[derive(Clone, Debug)]
pub struct CodeMapping<'a> {
    /// Where.
    pub range: Range<Avma>,
    /// What its addresses are above those that the file states.
    pub bias: u64,
    /// `None` for generated code, and for files that are not ELF.
    pub module: Option<&'a Arc<UnwindModule>>,
}

/// What was in a place before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Removed {
    Nothing,
    Generated,
    /// Code of a file, perhaps among other.
    OfFile,
}

/// Code mappings of a process that are known at once, as many as the kernel lets it have (`vm.max_map_count`). `munmap` gives no
/// record: most of so many have gone, and those that have not are told of when their addresses turn out to be unknown.
const MAX_MAPPINGS: usize = 65_530;

/// The executable mappings of one process: sorted, without overlaps.
#[derive(Clone, Default, Debug)]
pub(super) struct Mappings(Vec<Mapping>);

impl Mappings {
    /// Puts a mapping in, in the place of others.
    pub(super) fn insert(
        &mut self,
        range: Range<Avma>,
        offset: FileOffset,
        module: Option<Arc<UnwindModule>>,
    ) -> Removed {
        if range.is_empty() {
            return Removed::Nothing;
        }
        let placed = module.and_then(|module| Some((module.bias(range.start, offset)?, module)));
        let (bias, module) = placed.map_or((0, None), |(bias, module)| (bias, Some(module)));
        let new = Mapping { start: range.start.0, end: range.end.0, bias, module };
        if self.find(new.start).is_some_and(|old| old.is_same(&new)) {
            return Removed::Nothing;
        }
        let removed = self.remove(range);
        if self.0.len() >= MAX_MAPPINGS {
            self.0.clear();
        }
        let at = self.0.partition_point(|mapping| mapping.start < new.start);
        self.0.insert(at, new);
        removed
    }

    /// Takes out what lies in `range`; mappings that it cuts keep their rest.
    pub(super) fn remove(&mut self, range: Range<Avma>) -> Removed {
        let first = self.0.partition_point(|mapping| mapping.end <= range.start.0);
        let last = self.0.partition_point(|mapping| mapping.start < range.end.0);
        if range.is_empty() || first >= last {
            return Removed::Nothing;
        }
        let is_of_file = self.0[first..last].iter().any(|mapping| mapping.module.is_some());
        let below = Mapping { end: range.start.0, ..self.0[first].clone() };
        let above = Mapping { start: range.end.0, ..self.0[last - 1].clone() };
        let kept = [below, above].into_iter().filter(|mapping| mapping.start < mapping.end);
        self.0.splice(first..last, kept);
        if is_of_file { Removed::OfFile } else { Removed::Generated }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = CodeMapping<'_>> {
        self.0.iter().map(|mapping| CodeMapping {
            range: Avma(mapping.start)..Avma(mapping.end),
            bias: mapping.bias,
            module: mapping.module.as_ref(),
        })
    }

    pub(super) fn find(&self, address: u64) -> Option<&Mapping> {
        let at = self.0.partition_point(|mapping| mapping.start <= address).checked_sub(1)?;
        self.0.get(at).filter(|mapping| address < mapping.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(mappings: &Mappings) -> Vec<(u64, u64)> {
        mappings.0.iter().map(|mapping| (mapping.start, mapping.end)).collect()
    }

    #[test]
    fn new_mappings_replace_what_they_cover() {
        let mut mappings = Mappings::default();
        let mut map = |start, end| {
            mappings.insert(Avma(start)..Avma(end), FileOffset(0), None);
            ranges(&mappings)
        };
        assert_eq!(map(10, 20), [(10, 20)]);
        assert_eq!(map(30, 40), [(10, 20), (30, 40)]);
        assert_eq!(map(15, 35), [(10, 15), (15, 35), (35, 40)]);
        assert_eq!(map(5, 5), [(10, 15), (15, 35), (35, 40)]);
        mappings.remove(Avma(20)..Avma(25));
        assert_eq!(ranges(&mappings), [(10, 15), (15, 20), (25, 35), (35, 40)]);
        assert!(mappings.find(24).is_none() && mappings.find(25).is_some() && mappings.find(40).is_none());
        mappings.remove(Avma(0)..Avma(u64::MAX));
        assert!(ranges(&mappings).is_empty());
        for piece in 0..MAX_MAPPINGS as u64 + 10 {
            mappings.insert(Avma(piece * 2)..Avma(piece * 2 + 1), FileOffset(0), None);
        }
        assert_eq!(mappings.0.len(), 10);
    }
}
