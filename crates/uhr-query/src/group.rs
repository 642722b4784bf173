//! What rows are grouped by. A key has two halves: what belongs to the sample (process, thread, time, ...) and what
//! belongs to one frame (module, function, line, ...). Each half is a dense number while counting; it is turned into
//! words only for the rows that are shown.

use rustc_hash::FxHashMap;
use uhr_model::{Dimension, DimensionKind, Metric, StackEnding};

use crate::QueryError;
use crate::answers::KeyValue;
use crate::cells::{
    Cells, Details, MAJOR, MappingName, Owner, PAGE, REGION, Slots, Source, Tag, WakerDetail,
};
use crate::most_names::with_most_names_alone;
use crate::profile::{Location, NONE, Profile, Site};
use crate::select::Selection;
use crate::window::{Cut, TIME_PARTS, TimeRange, duration_ns};

/// The dimensions of a question, such as `process,function` or `time:100ms`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupBy {
    dimensions: Vec<Dimension>,
    /// Length of the parts of `time`, where one was given.
    time_step_ns: Option<u64>,
    /// As the user wrote them: of those, some stand for two.
    words: Vec<String>,
}

impl GroupBy {
    /// Reads dimensions from a list with commas. One that is named twice counts once.
    ///
    /// # Errors
    /// [`QueryError::UnknownDimension`].
    pub fn parse(text: &str) -> Result<Self, QueryError> {
        let mut group = Self { dimensions: Vec::new(), time_step_ns: None, words: Vec::new() };
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let unknown = || QueryError::UnknownDimension(word.to_owned());
            let (name, step) = word.split_once(':').map_or((word, None), |(name, step)| (name, Some(step)));
            let dimension = Dimension::from_name(name).ok_or_else(unknown)?;
            let is_kind = (dimension, step) == (Dimension::Region, Some("kind"));
            if let Some(step) = step.filter(|_| !is_kind) {
                let length = duration_ns(step).filter(|length| *length > 0 && dimension == Dimension::Time);
                group.time_step_ns = Some(length.ok_or_else(unknown)?);
            }
            // Memory that has a name is told apart by it.
            let names = (dimension == Dimension::Region && !is_kind).then_some(Dimension::Mapping);
            let known = group.dimensions.len();
            for one in [dimension].into_iter().chain(names) {
                if !group.dimensions.contains(&one) {
                    group.dimensions.push(one);
                }
            }
            if group.dimensions.len() > known {
                group.words.push(word.to_owned());
            }
        }
        if group.dimensions.is_empty() {
            return Err(QueryError::UnknownDimension(text.to_owned()));
        }
        Ok(group)
    }

    /// These dimensions.
    pub(crate) fn of(dimensions: &[Dimension]) -> Self {
        let words = dimensions.iter().map(|one| one.name().to_owned()).collect();
        Self { dimensions: dimensions.to_vec(), time_step_ns: None, words }
    }

    /// The dimensions, in order.
    pub fn dimensions(&self) -> &[Dimension] {
        &self.dimensions
    }

    /// As a request repeats them.
    pub(crate) fn words(&self) -> &[String] {
        &self.words
    }

    /// Whether time is the first dimension: rows then follow it.
    pub fn is_timeline(&self) -> bool {
        self.dimensions.first() == Some(&Dimension::Time)
    }

    pub(crate) fn has(&self, dimension: Dimension) -> bool {
        self.dimensions.contains(&dimension)
    }

    /// Whether it tells addresses apart, for which the recording's code is needed.
    pub(crate) fn has_addresses(&self) -> bool {
        self.has(Dimension::Address) || self.has(Dimension::Instruction)
    }

    /// Whether the metric can be grouped like this.
    pub(crate) fn check(&self, metric: Metric, profile: &Profile) -> Result<(), QueryError> {
        let fits = |dimension: Dimension| match (metric, dimension) {
            (Metric::Resident, _) => {
                matches!(dimension, Dimension::Process | Dimension::Command | Dimension::Time)
            }
            (Metric::Syscalls | Metric::SyscallTime, _) => {
                let of_state = OF_STATE.contains(&dimension) || OF_FAULT.contains(&dimension);
                dimension.kind() == DimensionKind::Sample && !of_state
            }
            (_, Dimension::Errno) => false,
            (_, of_fault) if OF_FAULT.contains(&of_fault) => metric == Metric::PageFaults,
            (_, Dimension::Wait) => matches!(metric, Metric::OffCpu | Metric::Runqueue | Metric::Wall),
            (_, Dimension::Waker) => matches!(metric, Metric::OffCpu | Metric::Wall),
            (_, Dimension::Syscall) => metric != Metric::PageFaults,
            (_, Dimension::Cpu) => metric == Metric::Cpu,
            _ => true,
        };
        match self.dimensions.iter().find(|dimension| !fits(**dimension)) {
            Some(&dimension) => {
                let recording = profile.path.clone();
                Err(QueryError::DimensionNotOfMetric { dimension, metric, recording })
            }
            None => Ok(()),
        }
    }

    /// The slots to count in: the parts of `time` where it is asked for, otherwise the blocks of the intervals.
    pub(crate) fn slots(&self, range: TimeRange) -> Result<Slots, QueryError> {
        let name = Dimension::Time.name();
        let Some(word) = self.words.iter().find(|word| word.split(':').next() == Some(name)) else {
            return Ok(Slots::blocks(range));
        };
        let cut = self.time_step_ns.map_or(Cut::Equal(TIME_PARTS), Cut::Every);
        Slots::new(range, cut, word)
    }

    /// Whose observations it tells apart.
    pub(crate) fn owner(&self) -> Owner {
        let has_any = |dimensions: &[Dimension]| dimensions.iter().any(|one| self.has(*one));
        if has_any(&[Dimension::Thread, Dimension::ThreadName]) {
            Owner::Thread
        } else if has_any(&[Dimension::Process, Dimension::Command]) || has_any(&OF_CGROUP) {
            Owner::Process
        } else {
            Owner::Nobody
        }
    }

    /// The circumstances that it tells apart.
    pub(crate) fn details(&self) -> Details {
        Details {
            syscall: self.has(Dimension::Syscall),
            cpu: self.has(Dimension::Cpu),
            mapping: self.has(Dimension::Mapping),
            waker: if self.has(Dimension::Waker) { WakerDetail::Who } else { WakerDetail::None },
        }
    }

    /// Whether any dimension belongs to frames.
    pub(crate) fn has_frames(&self) -> bool {
        self.dimensions.iter().any(|dimension| dimension.kind() == DimensionKind::Frame)
    }

    /// Whether any dimension belongs to the sample.
    pub(crate) fn has_samples(&self) -> bool {
        self.dimensions.iter().any(|dimension| dimension.kind() == DimensionKind::Sample)
    }
}

/// What only page faults have.
pub(crate) const OF_FAULT: [Dimension; 4] =
    [Dimension::Region, Dimension::Mapping, Dimension::Fault, Dimension::PageSize];

/// What only a state of a thread has: no page fault, and no call that was counted.
const OF_STATE: [Dimension; 3] = [Dimension::Wait, Dimension::Waker, Dimension::Cpu];

/// What a process is in.
const OF_CGROUP: [Dimension; 3] = [Dimension::Cgroup, Dimension::Container, Dimension::Pod];

/// Whether a line is asked for without anything that says whose: its file then belongs to the key.
pub(crate) fn line_needs_file(dimensions: &[Dimension]) -> bool {
    let has = |dimension| dimensions.contains(&dimension);
    has(Dimension::Line) && !has(Dimension::File) && !has(Dimension::Function)
}

/// What the frame half of a key stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameKey {
    /// All locations like this one, as far as the dimensions tell them apart.
    Like(Location),
    /// Samples whose stack has no frame.
    NoFrame,
    /// Time without a stack.
    Marker(StackEnding),
}

/// The frame half of every key.
#[derive(Debug)]
pub(crate) struct FrameKeys {
    /// Number of each location's key.
    pub(crate) of_location: Vec<u32>,
    pub(crate) keys: Vec<FrameKey>,
}

/// Endings that stand for time without a stack, and come first among the keys, behind the empty stack.
pub(crate) const MARKERS: [StackEnding; 3] =
    [StackEnding::TooShortToSample, StackEnding::KernelNotVisible, StackEnding::NotSampled];

impl FrameKeys {
    pub(crate) fn new(profile: &Profile, dimensions: &[Dimension]) -> Self {
        let mut keys = vec![FrameKey::NoFrame];
        keys.extend(MARKERS.map(FrameKey::Marker));
        let has = |dimension| dimensions.contains(&dimension);
        let (function, module) = (has(Dimension::Function), has(Dimension::Module));
        let (file, line, mode) =
            (has(Dimension::File) || line_needs_file(dimensions), has(Dimension::Line), has(Dimension::Mode));
        let place = has(Dimension::Address) || has(Dimension::Instruction);
        let code = &profile.code;
        let nowhere = Site { module: NONE, address: 0 };
        let sites = instruction_sites(profile, place);
        let mut known: FxHashMap<([u32; 4], Site), u32> = FxHashMap::default();
        let mut number = |location: &Location| {
            let owner = match (function, module) {
                (true, _) => location.function,
                (false, true) => code.functions[location.function as usize].module,
                (false, false) => 0,
            };
            let site = sites.get(location.frame as usize).copied().unwrap_or(nowhere);
            let place = (if file { location.file } else { 0 }, if line { location.line } else { 0 });
            let kind = if mode { u32::from(location.mode.code()) } else { 0 };
            *known.entry(([owner, place.0, place.1, kind], site)).or_insert_with(|| {
                keys.push(FrameKey::Like(*location));
                keys.len() as u32 - 1
            })
        };
        let of_location = code.locations.iter().map(&mut number).collect();
        Self { of_location, keys }
    }

    /// The key of what has no frame.
    #[inline]
    pub(crate) fn without_frame(ending: StackEnding) -> u32 {
        MARKERS.iter().position(|marker| *marker == ending).map_or(0, |at| at as u32 + 1)
    }
}

/// Of each frame, where its instruction begins, if that is asked for.
fn instruction_sites(profile: &Profile, is_asked: bool) -> Vec<Site> {
    let code = profile.machine_code_at_hand();
    let start = |site: &Site| Site {
        address: code.map_or(site.address, |code| code.instruction_start(*site)),
        ..*site
    };
    if is_asked { profile.code.sites.iter().map(start).collect() } else { Vec::new() }
}

/// What the sample half of a key stands for: all samples like this one, as far as the dimensions tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SampleKey {
    /// Samples of a thread in a slot with these circumstances.
    Like {
        /// Row of `threads`.
        thread: u32,
        /// What else is known.
        tag: Tag,
        /// Part of the window.
        slot: u16,
    },
    /// Time without a stack, where the grouping has no half for frames that could say so.
    Marker(StackEnding),
}

/// The sample half of every key that occurs.
#[derive(Debug)]
pub(crate) struct SampleKeys {
    /// Number of each cell's key.
    pub(crate) of_cell: Vec<u32>,
    pub(crate) keys: Vec<SampleKey>,
}

impl SampleKeys {
    /// Of the cells of a selection, which decides what mappings have names of their own.
    pub(crate) fn new(profile: &Profile, group: &GroupBy, cells: &Cells, selection: &Selection) -> Self {
        let threads = thread_parts(profile, &group.dimensions);
        let named = with_most_names_alone(group, cells, selection);
        let all = named.as_deref().unwrap_or(&cells.tags);
        let tags = tag_parts(profile, group, all);
        let with_time = group.has(Dimension::Time);
        let mut keys = Vec::new();
        let mut known: FxHashMap<(u32, u32, u16), u32> = FxHashMap::default();
        let mut last = None;
        let mut of_cell = Vec::with_capacity(cells.len());
        for cell in 0..cells.len() {
            let (thread, tag) = (cells.thread[cell], cells.tag[cell]);
            let slot = if with_time { cells.slot[cell] } else { 0 };
            let part = match tags[tag as usize] {
                TagPart::Like(part) => (threads[thread as usize], part, slot),
                // Markers of all threads and times are one row.
                TagPart::Marker(part) => (0, part, 0),
            };
            let number = match last {
                Some((before, number)) if before == part => number,
                _ => *known.entry(part).or_insert_with(|| {
                    keys.push(match tags[tag as usize] {
                        TagPart::Like(_) => SampleKey::Like { thread, tag: all[tag as usize], slot },
                        TagPart::Marker(_) => SampleKey::Marker(all[tag as usize].ending),
                    });
                    keys.len() as u32 - 1
                }),
            };
            last = Some((part, number));
            of_cell.push(number);
        }
        Self { of_cell, keys }
    }
}

/// Numbers of threads that the dimensions do not tell apart are equal.
fn thread_parts(profile: &Profile, dimensions: &[Dimension]) -> Vec<u32> {
    let owners = &profile.owners;
    let has = |dimension| dimensions.contains(&dimension);
    // Process or thread, their names, and what the process is in.
    type Part<'a> = (u32, [&'a str; 2], [Option<&'a str>; 3]);
    let mut known: FxHashMap<Part<'_>, u32> = FxHashMap::default();
    let mut parts = Vec::with_capacity(owners.threads.len());
    for (at, thread) in owners.threads.iter().enumerate() {
        let owner = match (has(Dimension::Thread), has(Dimension::Process)) {
            (true, _) => at as u32,
            (false, true) => thread.process,
            (false, false) => 0,
        };
        let name = if has(Dimension::ThreadName) { thread.name.as_str() } else { "" };
        let command = if has(Dimension::Command) { owners.process_of(at).name.as_str() } else { "" };
        let place = OF_CGROUP.map(|one| owners.place_of(at, one).filter(|_| has(one)));
        let next = known.len() as u32;
        parts.push(*known.entry((owner, [name, command], place)).or_insert(next));
    }
    parts
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TagPart {
    Like(u32),
    Marker(u32),
}

/// Numbers of circumstances that the dimensions do not tell apart are equal.
fn tag_parts(profile: &Profile, group: &GroupBy, tags: &[Tag]) -> Vec<TagPart> {
    // What of the code of a kind is told apart.
    let bits = [
        (Dimension::Region, REGION),
        (Dimension::Fault, MAJOR),
        (Dimension::PageSize, PAGE),
        (Dimension::Wait, u8::MAX),
        (Dimension::Errno, u8::MAX),
    ];
    let kind =
        bits.into_iter().filter(|(dimension, _)| group.has(*dimension)).fold(0, |all, (_, bits)| all | bits);
    let has = |dimension| group.has(dimension);
    let (syscall, cpu, waker) = (has(Dimension::Syscall), has(Dimension::Cpu), has(Dimension::Waker));
    let mapping = has(Dimension::Mapping);
    let mut known: FxHashMap<Tag, u32> = FxHashMap::default();
    let part = |tag: &Tag| {
        let marker = marks_samples(tag.ending) && !group.has_frames();
        let source = if kind != 0 || syscall || waker { tag.source } else { Source::Sampled };
        let key = match marker {
            true => Tag::new(Source::Sampled, tag.ending, 0),
            false => Tag {
                syscall: tag.syscall.filter(|_| syscall),
                cpu: tag.cpu.filter(|_| cpu),
                mapping: if mapping { tag.mapping } else { MappingName::None },
                waker: if waker { profile.wakers.who[tag.waker as usize] } else { 0 },
                // Which stands here for all that are no marker.
                ..Tag::new(source, StackEnding::Complete, tag.kind & kind)
            },
        };
        let next = known.len() as u32;
        let number = *known.entry(key).or_insert(next);
        if marker { TagPart::Marker(number) } else { TagPart::Like(number) }
    };
    tags.iter().map(part).collect()
}

/// Time that no sample stands for is a row of its own in every grouping (design section 7). Waits without a stack are
/// not among these: whose they are and of what kind is known exactly.
fn marks_samples(ending: StackEnding) -> bool {
    matches!(ending, StackEnding::TooShortToSample | StackEnding::KernelNotVisible)
}

/// The value that stands for time without a stack.
pub(crate) fn marker(ending: StackEnding) -> KeyValue {
    ending.row_key().map_or(KeyValue::Unknown, KeyValue::from)
}
