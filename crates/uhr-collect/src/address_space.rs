//! What is mapped where in one process.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use uhr_model::object::Segments;
use uhr_model::{Avma, FileOffset, FrameMode, ModuleId, ModuleKind, Region};

use crate::intern::FrameKey;

/// One mapping.
#[derive(Clone, Debug)]
pub(crate) struct Mapped {
    pub(crate) end: Avma,
    pub(crate) file_offset: FileOffset,
    pub(crate) region: Region,
    /// What it is called.
    pub(crate) name: Option<Arc<str>>,
    /// When that was last asked for. 0: what the record of its making told is all that is known.
    pub(crate) asked_ns: u64,
    /// `None` for data.
    pub(crate) code: Option<MappedCode>,
}

impl Mapped {
    /// Whether it is data without anything of its own, of which two neighbours are one mapping to the kernel too.
    fn is_plain(&self) -> bool {
        self.code.is_none() && self.name.is_none() && self.region != Region::File
    }

    /// Whether a program can have named it since it was made: anonymous memory, shared or not.
    pub(crate) fn may_be_named(&self) -> bool {
        let is_anonymous = matches!(self.region, Region::Anonymous | Region::Shared);
        is_anonymous && (self.name.is_none() || self.asked_ns > 0)
    }
}

/// The code side of a mapping.
#[derive(Clone, Debug)]
pub(crate) struct MappedCode {
    pub(crate) module: ModuleId,
    pub(crate) kind: ModuleKind,
    pub(crate) segments: Arc<Segments>,
}

/// Mappings of a process that are known at once, as many as the kernel lets it have (`vm.max_map_count`). Beyond that data is
/// forgotten, and faults there are of unknown memory; so is code, if there is so much. An address in no known mapping makes uhr
/// read the maps again.
const MAX_MAPPINGS: usize = 65_530;

/// The mappings of one process, as far as the kernel has told of them. `munmap` and `mremap` give no record, so what is
/// here may be gone: a newer mapping replaces what it covers. Processes that were forked share theirs until one maps something.
#[derive(Clone, Debug, Default)]
pub(crate) struct AddressSpace {
    known: Arc<BTreeMap<Avma, Mapped>>,
    has_generated_code: bool,
}

impl AddressSpace {
    /// Adds a mapping; what it covers of older ones is cut away.
    pub(crate) fn map(&mut self, start: Avma, mapped: Mapped) {
        self.has_generated_code |= mapped.code.as_ref().is_some_and(|code| code.kind == ModuleKind::Jit);
        let known = Arc::make_mut(&mut self.known);
        if known.len() >= MAX_MAPPINGS {
            known.retain(|_, mapped| mapped.code.is_some());
            // So much code is not mapped at once: most of it has gone.
            if known.len() >= MAX_MAPPINGS / 2 {
                known.clear();
            }
        }
        make_room(known, start, mapped.end);
        let (start, mapped) = join(known, start, mapped);
        known.insert(start, mapped);
    }

    /// The mapping that holds an address.
    pub(crate) fn find(&self, address: Avma) -> Option<(Avma, &Mapped)> {
        self.known
            .range(..=address)
            .next_back()
            .filter(|(_, mapped)| address < mapped.end)
            .map(|(&start, m)| (start, m))
    }

    /// Names what is mapped without a name in a range, as was asked for now.
    pub(crate) fn name(&mut self, range: &Range<Avma>, name: Option<&Arc<str>>, asked_ns: u64) {
        let begin = self.find(range.start).map_or(range.start, |(start, _)| start);
        let within: Vec<(Avma, Mapped)> = self
            .known
            .range(begin..range.end)
            .filter(|(_, mapped)| mapped.may_be_named() && mapped.end > range.start)
            .map(|(start, mapped)| (*start, mapped.clone()))
            .collect();
        for (start, mapped) in within {
            let from = start.max(range.start);
            let file_offset = FileOffset(mapped.file_offset.0.wrapping_add(from.0 - start.0));
            let end = mapped.end.min(range.end);
            self.map(from, Mapped { end, file_offset, name: name.cloned(), asked_ns, ..mapped });
        }
    }

    /// The frame of a code address; `lookup` is what names are looked up by.
    pub(crate) fn frame(&self, lookup: Avma, is_return: bool) -> FrameKey {
        let unknown = FrameKey { mode: FrameMode::User, module: None, address: lookup.0, is_return };
        let Some((start, Mapped { file_offset, code: Some(code), .. })) = self.find(lookup) else {
            return unknown;
        };
        let offset = FileOffset(file_offset.0.wrapping_add(lookup.0 - start.0));
        let (mode, address) = match code.kind {
            ModuleKind::Jit => (FrameMode::Jit, lookup.0),
            ModuleKind::Elf | ModuleKind::Vdso => match code.segments.relative_of_offset(offset) {
                Some(relative) => (FrameMode::User, relative.0),
                None => return unknown,
            },
            _ => (FrameMode::User, offset.0),
        };
        FrameKey { mode, module: Some(code.module), address, is_return }
    }

    /// Whether it has had executable memory without a file.
    pub(crate) fn has_generated_code(&self) -> bool {
        self.has_generated_code
    }

    /// What kind of memory an address is in.
    pub(crate) fn region(&self, address: Avma) -> Region {
        self.find(address).map_or(Region::Unknown, |(_, mapped)| mapped.region)
    }
}

/// Cuts away what is mapped in a range.
fn make_room(known: &mut BTreeMap<Avma, Mapped>, start: Avma, end: Avma) {
    let overlapping = known.range(..end).rev().take_while(|(_, old)| old.end > start);
    let overlapping: Vec<Avma> = overlapping.map(|(&old_start, _)| old_start).collect();
    for old_start in overlapping {
        let Some(old) = known.remove(&old_start) else { continue };
        if old_start < start {
            known.insert(old_start, Mapped { end: start, ..old.clone() });
        }
        if old.end > end {
            let file_offset = FileOffset(old.file_offset.0.wrapping_add(end.0 - old_start.0));
            known.insert(end, Mapped { file_offset, ..old });
        }
    }
}

/// Takes neighbours out that are one mapping with this one: an allocator maps thousands of pieces.
fn join(known: &mut BTreeMap<Avma, Mapped>, mut start: Avma, mut mapped: Mapped) -> (Avma, Mapped) {
    let is_one = |other: &Mapped, mapped: &Mapped| {
        let is_alike = (other.region, other.asked_ns) == (mapped.region, mapped.asked_ns);
        is_alike && other.is_plain() && mapped.is_plain()
    };
    if let Some((&below, _)) =
        known.range(..start).next_back().filter(|(_, below)| below.end == start && is_one(below, &mapped))
    {
        known.remove(&below);
        start = below;
    }
    if known.get(&mapped.end).is_some_and(|above| is_one(above, &mapped))
        && let Some(above) = known.remove(&mapped.end)
    {
        mapped.end = above.end;
    }
    (start, mapped)
}

/// What kind of memory a mapping is, by the name that the kernel gives it.
pub(crate) fn region_of(path: &[u8], is_shared: bool) -> Region {
    match path {
        b"[heap]" => Region::Heap,
        b"[vdso]" | b"[vvar]" | b"[vsyscall]" => Region::Vdso,
        path if path.starts_with(b"[stack") => Region::Stack,
        path if path.starts_with(b"/dev/shm/")
            || path.starts_with(b"/SYSV")
            || path.starts_with(b"/memfd:")
            || path.starts_with(b"/dev/zero")
            || path.starts_with(b"[anon_shmem") =>
        {
            Region::Shared
        }
        b"/anon_hugepage" | b"/anon_hugepage (deleted)" if !is_shared => Region::Anonymous,
        b"/anon_hugepage" | b"/anon_hugepage (deleted)" => Region::Shared,
        path if path.starts_with(b"/") && !path.starts_with(b"//anon") => Region::File,
        _ if is_shared => Region::Shared,
        _ => Region::Anonymous,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(end: u64, offset: u64) -> Mapped {
        let (region, name, asked_ns, code) = (Region::File, None, 0, None);
        Mapped { end: Avma(end), file_offset: FileOffset(offset), region, name, asked_ns, code }
    }

    #[test]
    fn a_newer_mapping_cuts_the_older_ones() {
        let mut space = AddressSpace::default();
        space.map(Avma(0x1000), data(0x5000, 0));
        space.map(Avma(0x2000), data(0x3000, 0x70));
        let at = |address| space.find(Avma(address)).map(|(start, m)| (start.0, m.end.0, m.file_offset.0));
        assert_eq!(at(0x1fff), Some((0x1000, 0x2000, 0)));
        assert_eq!(at(0x2000), Some((0x2000, 0x3000, 0x70)));
        assert_eq!(at(0x3000), Some((0x3000, 0x5000, 0x2000)));
        assert_eq!(at(0x5000), None);
        space.map(Avma(0), data(0x10_000, 0));
        assert_eq!(space.known.len(), 1);
    }

    #[test]
    fn pieces_of_plain_memory_are_one_and_their_number_is_bounded() {
        let mut space = AddressSpace::default();
        let plain = |end| Mapped { region: Region::Anonymous, ..data(end, 0) };
        for piece in [5, 1, 3, 2, 4, 7] {
            space.map(Avma(piece * 0x1000), plain((piece + 1) * 0x1000));
        }
        let pieces: Vec<_> = space.known.iter().map(|(start, mapped)| (start.0, mapped.end.0)).collect();
        assert_eq!(pieces, [(0x1000, 0x6000), (0x7000, 0x8000)]);
        // Files and other kinds of memory are not.
        space.map(Avma(0x6000), data(0x7000, 0));
        space.map(Avma(0x8000), Mapped { region: Region::Shared, ..data(0x9000, 0) });
        assert_eq!(space.known.len(), 4);
        let of_parent = space.clone();
        let segments = Arc::default();
        let code = MappedCode { module: ModuleId(0), kind: ModuleKind::Jit, segments };
        for code in [None, Some(code)] {
            for piece in 0..200_000 {
                let mapped = Mapped { code: code.clone(), ..plain(piece * 0x2000 + 0x1000) };
                space.map(Avma(piece * 0x2000), mapped);
            }
            assert!(space.known.len() <= MAX_MAPPINGS);
        }
        assert_eq!(of_parent.known.len(), 4);
    }

    #[test]
    fn names_are_of_anonymous_memory_that_has_none() {
        let mut space = AddressSpace::default();
        let anonymous = |end| Mapped { region: Region::Anonymous, ..data(end, 0) };
        space.map(Avma(0x1000), anonymous(0x5000));
        space.map(Avma(0x5000), data(0x6000, 0));
        space.map(Avma(0x6000), anonymous(0x9000));
        let name = |space: &mut AddressSpace, range: Range<u64>, name: &str, asked_ns| {
            let name: Option<Arc<str>> = (!name.is_empty()).then(|| name.into());
            space.name(&(Avma(range.start)..Avma(range.end)), name.as_ref(), asked_ns);
        };
        let named = |space: &AddressSpace, at| {
            let (_, mapped) = space.find(Avma(at)).unwrap();
            (mapped.name.as_deref().map(str::to_owned), mapped.asked_ns)
        };
        name(&mut space, 0x2000..0x7000, "a", 5);
        assert_eq!(named(&space, 0x1fff), (None, 0));
        assert_eq!(named(&space, 0x2000), (Some("a".into()), 5));
        assert_eq!(named(&space, 0x5000), (None, 0), "a file");
        assert_eq!(named(&space, 0x6fff), (Some("a".into()), 5));
        assert_eq!(named(&space, 0x7000), (None, 0));
        // Later it is called otherwise, and then nothing.
        name(&mut space, 0x3000..0x4000, "b", 6);
        assert_eq!([0x2fff, 0x3000, 0x4000].map(|at| named(&space, at).1), [5, 6, 5]);
        name(&mut space, 0x2000..0x5000, "", 7);
        assert_eq!(named(&space, 0x3000), (None, 7));
        // A new mapping in the same place has a name of its own, or none yet.
        space.map(Avma(0x3000), anonymous(0x4000));
        assert_eq!(named(&space, 0x3000), (None, 0));
        name(&mut space, 0x9000..0xa000, "beyond", 8);
    }

    #[test]
    fn regions_by_name() {
        assert_eq!(region_of(b"[heap]", false), Region::Heap);
        assert_eq!(region_of(b"//anon", false), Region::Anonymous);
        assert_eq!(region_of(b"", true), Region::Shared);
        assert_eq!(region_of(b"/anon_hugepage (deleted)", false), Region::Anonymous);
        assert_eq!(region_of(b"/anon_hugepage (deleted)", true), Region::Shared);
        assert_eq!(region_of(b"[anon:arena]", false), Region::Anonymous);
        assert_eq!(region_of(b"[anon_shmem:ring]", true), Region::Shared);
        assert_eq!(region_of(b"/usr/lib/libc.so.6", false), Region::File);
        assert_eq!(region_of(b"/dev/shm/x", true), Region::Shared);
    }
}
