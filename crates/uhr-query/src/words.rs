//! Keys in words: what the numbers of [`crate::group`] stand for, as answers write it, and the order of equal rows.

use std::cmp::Ordering;

use uhr_model::{Dimension, DimensionKind, PageSize, Region, WaitKind, errno_name, syscall_name};

use crate::answers::{Key, KeyValue};
use crate::cells::{MAJOR, MappingName, PAGE, REGION, Source, Tag, errno_of};
use crate::disassembly::disassemble;
use crate::group::{FrameKey, SampleKey, line_needs_file, marker};
use crate::names::shown;
use crate::profile::{NONE, Profile};
use crate::window::Slots;

/// An address as answers write it.
pub(crate) fn hex(address: u64) -> String {
    format!("{address:#x}")
}

/// Turns the two halves of a key into words.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Words<'a> {
    pub(crate) profile: &'a Profile,
    pub(crate) slots: Slots,
    pub(crate) whole_names: bool,
}

impl Words<'_> {
    /// The key of a row.
    pub(crate) fn key(
        &self,
        dimensions: &[Dimension],
        sample: Option<SampleKey>,
        frame: Option<FrameKey>,
    ) -> Key {
        let mut key = Vec::with_capacity(dimensions.len() + 1);
        for &dimension in dimensions {
            if let (Dimension::Line, Some(frame)) = (dimension, frame)
                && line_needs_file(dimensions)
            {
                key.push((Dimension::File, self.frame_value(Dimension::File, frame)));
            }
            // Memory without a name is of its kind, and that is all.
            let is_nameless =
                matches!(sample, Some(SampleKey::Like { tag, .. }) if tag.mapping == MappingName::None);
            if dimension == Dimension::Mapping && is_nameless && dimensions.contains(&Dimension::Region) {
                continue;
            }
            let value = match (dimension.kind(), sample, frame) {
                (DimensionKind::Frame, _, Some(frame)) => self.frame_value(dimension, frame),
                (DimensionKind::Sample, Some(sample), _) => self.sample_value(dimension, sample),
                _ => KeyValue::Unknown,
            };
            key.push((dimension, value));
            let Some(frame) = frame else { continue };
            // A function's name alone does not say which one it is, nor does an address, nor an instruction's text.
            let more: &[Dimension] = match dimension {
                Dimension::Instruction => &[Dimension::Address, Dimension::Module],
                Dimension::Function | Dimension::Address => &[Dimension::Module],
                _ => &[],
            };
            for &more in more {
                if !dimensions.contains(&more) && key.iter().all(|(has, _)| *has != more) {
                    key.push((more, self.frame_value(more, frame)));
                }
            }
        }
        Key(key)
    }

    fn text(&self, name: &str) -> KeyValue {
        KeyValue::Text(shown(name, self.whole_names).into_owned())
    }

    fn frame_value(&self, dimension: Dimension, frame: FrameKey) -> KeyValue {
        let code = &self.profile.code;
        let location = match frame {
            FrameKey::Like(location) => location,
            FrameKey::Marker(ending) => return marker(ending),
            FrameKey::NoFrame => return KeyValue::Text("[no stack]".to_owned()),
        };
        match dimension {
            Dimension::Function => self.text(&code.functions[location.function as usize].name),
            Dimension::Module => self.text(code.module_of(location.function)),
            Dimension::File if location.file != NONE => self.text(&code.files[location.file as usize]),
            Dimension::Line if location.line != NONE => KeyValue::Number(u64::from(location.line)),
            Dimension::Mode => KeyValue::Text(location.mode.name().to_owned()),
            Dimension::Address | Dimension::Instruction => self.instruction(dimension, location.frame),
            _ => KeyValue::Unknown,
        }
    }

    /// The address or the text of the instruction of a frame.
    fn instruction(&self, dimension: Dimension, frame: u32) -> KeyValue {
        let Some(site) = self.profile.code.sites.get(frame as usize) else { return KeyValue::Unknown };
        let found = || {
            let piece = self.profile.machine_code_at_hand()?.of(*site)?;
            let place = piece.instruction(site.address)?;
            Some((piece.start + place.start as u64, &piece.bytes[place]))
        };
        match (dimension, found()) {
            (Dimension::Address, found) => hex(found.map_or(site.address, |(address, _)| address)).into(),
            (_, Some((address, bytes))) => disassemble(bytes, address).text.into(),
            (_, None) => KeyValue::Unknown,
        }
    }

    fn sample_value(&self, dimension: Dimension, sample: SampleKey) -> KeyValue {
        let (thread, tag, slot) = match sample {
            SampleKey::Like { thread, tag, slot } => (thread as usize, tag, slot),
            SampleKey::Marker(ending) => return marker(ending),
        };
        let owners = &self.profile.owners;
        match dimension {
            Dimension::Command => self.text(&owners.process_of(thread).name),
            Dimension::Process => {
                owners.process_key(owners.threads[thread].process as usize, self.whole_names)
            }
            Dimension::ThreadName => self.text(&owners.threads[thread].name),
            Dimension::Thread => owners.thread_key(thread, self.whole_names),
            Dimension::Region => {
                Region::from_code(tag.kind & REGION).unwrap_or(Region::Unknown).name().into()
            }
            Dimension::Mapping => self.mapping_value(tag.mapping),
            Dimension::Fault => self.fault_value(tag),
            Dimension::PageSize => match PageSize::from_code((tag.kind & PAGE) >> PAGE.trailing_zeros()) {
                None | Some(PageSize::Unknown) => KeyValue::Unknown,
                Some(size) => size.name().into(),
            },
            Dimension::Wait => wait_value(tag),
            Dimension::Syscall => self.syscall_value(tag),
            Dimension::Errno => errno_value(errno_of(tag.kind)),
            Dimension::Waker => match tag.source {
                Source::Waiting => self.profile.wakers.key(tag.waker, owners, self.whole_names),
                _ => wait_value(tag),
            },
            Dimension::Cpu => tag.cpu.map_or(KeyValue::Unknown, |cpu| KeyValue::Number(u64::from(cpu))),
            Dimension::Cgroup | Dimension::Container | Dimension::Pod => {
                owners.place_of(thread, dimension).map_or(KeyValue::Unknown, |place| self.text(place))
            }
            Dimension::Time => self.time_value(usize::from(slot)),
            _ => KeyValue::Unknown,
        }
    }

    fn mapping_value(&self, name: MappingName) -> KeyValue {
        match name {
            MappingName::None => "[no name]".into(),
            MappingName::Row(row) => self.text(self.profile.mapping_names.get(row)),
            MappingName::Other(1) => "[1 other name]".into(),
            MappingName::Other(count) => format!("[{count} other names]").into(),
        }
    }

    /// Perf events of page faults are of both kinds.
    fn fault_value(&self, tag: Tag) -> KeyValue {
        match (self.profile.manifest.settings.sampler.as_str(), tag.kind & MAJOR) {
            ("ebpf", 0) => "minor".into(),
            ("ebpf", _) => "major".into(),
            _ => KeyValue::Unknown,
        }
    }

    fn syscall_value(&self, tag: Tag) -> KeyValue {
        match (tag.syscall, tag.source) {
            (Some(number), _) => {
                syscall_name(number).map_or_else(|| format!("syscall {number}").into(), KeyValue::from)
            }
            (None, Source::Counted) => "[several]".into(),
            (None, Source::Sampled) if self.profile.manifest.settings.kernel_visible => {
                "[not in a system call]".into()
            }
            (None, _) => KeyValue::Unknown,
        }
    }

    /// When a slot begins, in seconds from the start of the recording.
    pub(crate) fn time_value(&self, slot: usize) -> KeyValue {
        let offset = self.slots.start_of(slot).saturating_sub(self.profile.start_ns());
        KeyValue::Seconds((offset as f64 / 1e3).round() / 1e6)
    }
}

fn errno_value(errno: u16) -> KeyValue {
    match (errno, errno_name(errno)) {
        (0, _) => "ok".into(),
        (_, Some(name)) => name.into(),
        (_, None) => format!("errno {errno}").into(),
    }
}

fn wait_value(tag: Tag) -> KeyValue {
    match tag.source {
        Source::Sampled => "[on cpu]".into(),
        Source::Counted => KeyValue::Unknown,
        Source::Runnable => "[runnable]".into(),
        Source::Waiting => WaitKind::from_code(tag.kind).unwrap_or(WaitKind::Unknown).name().into(),
    }
}

impl From<&str> for KeyValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for KeyValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// The order of keys whose values are equal: by name, numbers by their size, what is unknown first.
pub(crate) fn compare(a: &Key, b: &Key) -> Ordering {
    let pairs = a.0.iter().zip(&b.0);
    let first = pairs.map(|(a, b)| compare_values(&a.1, &b.1)).find(|order| order.is_ne());
    first.unwrap_or_else(|| a.0.len().cmp(&b.0.len()))
}

/// The order of two values of a dimension.
pub(crate) fn compare_values(a: &KeyValue, b: &KeyValue) -> Ordering {
    use KeyValue::{Interrupt, Number, Process, Seconds, Text, Thread, Waker};
    let rank = |value: &KeyValue| match value {
        KeyValue::Unknown => 0,
        Text(_) => 1,
        Number(_) => 2,
        Seconds(_) => 3,
        Process { .. } => 4,
        Thread { .. } => 5,
        Waker { .. } => 6,
        Interrupt { .. } => 7,
    };
    match (a, b) {
        (Text(a), Text(b)) => a.cmp(b),
        (Number(a), Number(b)) => a.cmp(b),
        (Seconds(a), Seconds(b)) => a.total_cmp(b),
        (Process { name, pid, start_s, .. }, Process { name: name2, pid: pid2, start_s: start2, .. }) => {
            let starts = start_s.unwrap_or(0.0).total_cmp(&start2.unwrap_or(0.0));
            name.cmp(name2).then(pid.cmp(pid2)).then(starts)
        }
        (
            Thread { name, tid, pid, start_s },
            Thread { name: name2, tid: tid2, pid: pid2, start_s: start2 },
        ) => {
            let starts = start_s.unwrap_or(0.0).total_cmp(&start2.unwrap_or(0.0));
            name.cmp(name2).then(pid.cmp(pid2)).then(tid.cmp(tid2)).then(starts)
        }
        (Waker { name, tid, pid }, Waker { name: name2, tid: tid2, pid: pid2 }) => {
            name.cmp(name2).then(pid.cmp(pid2)).then(tid.cmp(tid2))
        }
        (Interrupt { interrupt: a }, Interrupt { interrupt: b }) => a.cmp(b),
        _ => rank(a).cmp(&rank(b)),
    }
}
