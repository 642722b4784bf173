//! Turns the bytes of records into records. Sizes and counts inside them are checked, whatever they claim.

use std::sync::{Arc, PoisonError, RwLock};

use perf_event_open_sys::bindings as b;
use rustc_hash::FxHashMap;
use uhr_model::BuildId;

use super::event::EventKind;
use super::fields::Fields;
use super::record::{Body, BpfProgram, FileIdentity, KernelSymbol, Mapping, Record, Stamp, Task};
use super::ring::HEADER_BYTES;
use super::sample::{Sample, SampleHead, SampleShape};

/// The bytes at the end of records of the sideband: pid, tid, time, CPU, event id. Every event may write the records
/// about itself (lost, throttled); another profiler's may have a stream id too.
const TRAILER_BYTES: usize = 32;

/// Where a sample's time lies: behind the header, the event's id, the address, and pid and tid.
const SAMPLE_TIME_AT: usize = HEADER_BYTES + 24;
/// And in the trailer of others, behind pid and tid.
const TRAILER_TIME_AT: usize = 8;

/// Bytes that are no record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Malformed {
    /// Fewer bytes than its fields need.
    #[error("a record of type {kind} is too short for its fields")]
    Short {
        /// The record's type.
        kind: u32,
    },
    /// Fewer bytes than a header.
    #[error("a record is shorter than a record's header")]
    NoHeader,
    /// A sample of an event that this session did not open.
    #[error("a sample names event {id}, which is not one of this session")]
    UnknownEvent {
        /// The id in it.
        id: u64,
    },
}

/// The ids of a session's events. Grows while threads are attached; records name their event by it.
#[derive(Clone, Debug, Default)]
pub(super) struct EventIds(Arc<RwLock<FxHashMap<u64, EventKind>>>);

impl EventIds {
    pub(super) fn insert(&self, id: u64, kind: EventKind) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(id, kind);
    }

    fn kind(&self, id: u64) -> Option<EventKind> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&id).copied()
    }
}

/// Turns a session's bytes into records. Cheap to clone; may be used on another thread.
#[derive(Clone, Debug)]
pub struct Decoder {
    ids: EventIds,
    shape: SampleShape,
}

impl Decoder {
    pub(super) fn new(ids: EventIds, shape: SampleShape) -> Self {
        Self { ids, shape }
    }

    /// When a record was written, without parsing the rest. `None` if it cannot be told or not be trusted: the time of
    /// a sample that another profiler's event filled is of that event's clock.
    pub fn time_ns(&self, record: &[u8]) -> Option<u64> {
        let mut fields = Fields(record);
        let (kind, _misc_and_size) = (fields.u32()?, fields.u32()?);
        if kind == b::PERF_RECORD_SAMPLE {
            let head = SampleHead::parse(&mut fields)?;
            return self.ids.kind(head.id).map(|_| head.time_ns);
        }
        let (_, trailer) = split_trailer(kind, fields)?;
        parse_trailer(trailer).map(|stamp| stamp.time_ns)
    }

    /// Whether a record is a sample of `kind` by the event id in it. A second-hand sample has somebody else's: it may be.
    pub(crate) fn may_be_of(&self, record: &[u8], kind: EventKind) -> bool {
        let mut fields = Fields(record);
        let is_sample = fields.u32() == Some(b::PERF_RECORD_SAMPLE);
        let (_misc_and_size, id) = (fields.u32(), fields.u64());
        is_sample && id.is_some_and(|id| self.ids.kind(id).is_none_or(|of| of == kind))
    }

    /// Parses one record as [`Session::drain`](super::Session::drain) hands it out.
    pub fn parse<'a>(&self, record: &'a [u8]) -> Result<Record<'a>, Malformed> {
        let mut fields = Fields(record);
        let (Some(kind), Some(misc), Some(_size)) = (fields.u32(), fields.u16(), fields.u16()) else {
            return Err(Malformed::NoHeader);
        };
        if kind == b::PERF_RECORD_SAMPLE {
            return self.sample(fields, misc);
        }
        let parts = || {
            let (body, trailer) = split_trailer(kind, fields)?;
            Some(Record { stamp: parse_trailer(trailer)?, body: parse_body(kind, misc, body)? })
        };
        parts().ok_or(Malformed::Short { kind })
    }

    fn sample<'a>(&self, mut fields: Fields<'a>, misc: u16) -> Result<Record<'a>, Malformed> {
        let short = Malformed::Short { kind: b::PERF_RECORD_SAMPLE };
        let head = SampleHead::parse(&mut fields).ok_or(short)?;
        let (sample, cpu) = match self.ids.kind(head.id) {
            Some(kind) => {
                let (sample, cpu, _) = Sample::parse(fields, &head, kind, misc, self.shape).ok_or(short)?;
                (sample, cpu)
            }
            None => self.second_hand(fields, &head, misc).ok_or(Malformed::UnknownEvent { id: head.id })?,
        };
        let stamp = Stamp { time_ns: head.time_ns, pid: head.pid, tid: head.tid, cpu };
        Ok(Record { stamp, body: Body::Sample(sample) })
    }

    /// A sample with the id of somebody else's event (see [`Sample::is_second_hand`]). It still has the fields that
    /// our event asked for: the kind is the one whose fields fill the record exactly. Where that other event has more
    /// fields, the kernel reserves room for them in our record too, and leaves it unwritten behind ours: then the
    /// kind is the first whose fields make sense.
    fn second_hand<'a>(&self, fields: Fields<'a>, head: &SampleHead, misc: u16) -> Option<(Sample<'a>, u32)> {
        let kinds = [EventKind::PageFault, EventKind::Switch].into_iter();
        let readings = kinds.filter_map(|kind| Sample::parse(fields, head, kind, misc, self.shape));
        let (sample, cpu, _) = readings.min_by_key(|(_, _, rest)| !rest.0.is_empty())?;
        Some((Sample { is_second_hand: true, ..sample }, cpu))
    }
}

/// Overwrites the time of a record, where it has one.
pub(super) fn set_time(record: &mut [u8], time_ns: u64) {
    let field = time_at(record).and_then(|at| record.get_mut(at..at + 8));
    field.into_iter().for_each(|field| field.copy_from_slice(&time_ns.to_ne_bytes()));
}

/// Where the time of a record stands.
fn time_at(record: &[u8]) -> Option<usize> {
    let mut fields = Fields(record);
    let (kind, _misc_and_size) = (fields.u32()?, fields.u32()?);
    if kind == b::PERF_RECORD_SAMPLE {
        return Some(SAMPLE_TIME_AT);
    }
    let (body, _trailer) = split_trailer(kind, fields)?;
    Some(HEADER_BYTES + body.0.len() + TRAILER_TIME_AT)
}

/// Cuts what stands before the trailer from it.
fn split_trailer(kind: u32, mut fields: Fields<'_>) -> Option<(Fields<'_>, Fields<'_>)> {
    let body_bytes = match kind {
        b::PERF_RECORD_LOST => 16,
        b::PERF_RECORD_LOST_SAMPLES => 8,
        b::PERF_RECORD_THROTTLE | b::PERF_RECORD_UNTHROTTLE => 24,
        // Where several events are open for them, the kernel writes these with a length that grows from event to event, and
        // leaves what is behind the trailer as it was (seen: 6.18).
        b::PERF_RECORD_KSYMBOL => {
            let name = Fields(fields.0.get(16..)?).name();
            16 + (name.len() + 1).next_multiple_of(8)
        }
        b::PERF_RECORD_BPF_EVENT => 16,
        _ => fields.0.len().checked_sub(TRAILER_BYTES)?,
    };
    let body = Fields(fields.bytes(body_bytes)?);
    if matches!(kind, b::PERF_RECORD_KSYMBOL | b::PERF_RECORD_BPF_EVENT) {
        fields = Fields(fields.bytes(TRAILER_BYTES)?);
    }
    Some((body, fields))
}

fn parse_trailer(mut fields: Fields<'_>) -> Option<Stamp> {
    let (pid, tid, time_ns) = (fields.u32()?, fields.u32()?, fields.u64()?);
    // The CPU and the id are last; a stream id may stand before them.
    let before_cpu = fields.0.len().checked_sub(16)?;
    let _stream = fields.bytes(before_cpu)?;
    Some(Stamp { time_ns, pid, tid, cpu: fields.u32()? })
}

fn parse_body(kind: u32, misc: u16, mut f: Fields<'_>) -> Option<Body<'_>> {
    let misc = u32::from(misc);
    Some(match kind {
        b::PERF_RECORD_MMAP2 => Body::Mapping(mapping(misc, f)?),
        b::PERF_RECORD_COMM => {
            let (pid, tid) = (f.u32()?, f.u32()?);
            Body::Name { pid, tid, name: f.name(), is_exec: misc & b::PERF_RECORD_MISC_COMM_EXEC != 0 }
        }
        b::PERF_RECORD_FORK => Body::Fork(task(f)?),
        b::PERF_RECORD_EXIT => Body::Exit(task(f)?),
        b::PERF_RECORD_SWITCH => switch(misc, None),
        b::PERF_RECORD_SWITCH_CPU_WIDE => switch(misc, Some((f.u32()?, f.u32()?))),
        b::PERF_RECORD_LOST => {
            let _id = f.u64()?;
            Body::Lost { count: f.u64()? }
        }
        b::PERF_RECORD_LOST_SAMPLES => Body::LostSamples { count: f.u64()? },
        b::PERF_RECORD_THROTTLE => Body::Throttle,
        b::PERF_RECORD_UNTHROTTLE => Body::Unthrottle,
        b::PERF_RECORD_KSYMBOL => {
            let (address, length, _type) = (f.u64()?, f.u32()?, f.u16()?);
            let is_gone = u32::from(f.u16()?) & b::PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER != 0;
            Body::KernelSymbol(KernelSymbol { address, length, is_gone, name: f.name() })
        }
        b::PERF_RECORD_BPF_EVENT => {
            let (action, _flags, id) = (f.u16()?, f.u16()?, f.u32()?);
            Body::BpfProgram(BpfProgram { action, id, tag: f.u64()?.to_ne_bytes() })
        }
        kind => Body::Unknown { kind },
    })
}

fn switch(misc: u32, other: Option<(u32, u32)>) -> Body<'static> {
    if misc & b::PERF_RECORD_MISC_SWITCH_OUT != 0 {
        Body::SwitchOut { is_preempted: misc & b::PERF_RECORD_MISC_SWITCH_OUT_PREEMPT != 0, other }
    } else {
        Body::SwitchIn { other }
    }
}

fn task(mut f: Fields<'_>) -> Option<Task> {
    let (pid, parent_pid, tid, parent_tid) = (f.u32()?, f.u32()?, f.u32()?, f.u32()?);
    Some(Task { pid, tid, parent_pid, parent_tid })
}

fn mapping(misc: u32, mut f: Fields<'_>) -> Option<Mapping<'_>> {
    let (pid, tid) = (f.u32()?, f.u32()?);
    let (start, length, file_offset) = (f.u64()?, f.u64()?, f.u64()?);
    let file = if misc & b::PERF_RECORD_MISC_MMAP_BUILD_ID != 0 {
        let size = usize::from(f.u8()?);
        let (_reserved, bytes) = (f.bytes(3)?, f.bytes(BuildId::MAX)?);
        BuildId::new(bytes.get(..size)?).map(FileIdentity::BuildId)
    } else {
        let (major, minor) = (f.u32()?, f.u32()?);
        Some(FileIdentity::Inode { major, minor, inode: f.u64()?, generation: f.u64()? })
    };
    let none = FileIdentity::Inode { major: 0, minor: 0, inode: 0, generation: 0 };
    let (protection, flags) = (f.u32()?, f.u32()?);
    let is_shared = flags & libc::MAP_SHARED as u32 != 0;
    let is_data = misc & b::PERF_RECORD_MISC_MMAP_DATA != 0;
    let file = file.unwrap_or(none);
    Some(Mapping {
        pid,
        tid,
        start,
        length,
        file_offset,
        file,
        protection,
        is_shared,
        is_data,
        path: f.name(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::perf::UserRegisters;
    use crate::perf::attr::Periods;

    const PERIODS: Periods = Periods { cpu_ns: 1_001_001, page_faults: 61 };

    fn decoder() -> Decoder {
        let ids = EventIds::default();
        EventKind::ALL.iter().zip(1..).for_each(|(&kind, id)| ids.insert(id, kind));
        Decoder::new(ids, SampleShape { max_stack: 127, periods: PERIODS })
    }

    fn record(kind: u32, misc: u16, body: &[u64]) -> Vec<u8> {
        let size = (HEADER_BYTES + 8 * body.len()) as u16;
        let mut bytes = [&kind.to_ne_bytes()[..], &misc.to_ne_bytes(), &size.to_ne_bytes()].concat();
        body.iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
        bytes
    }

    fn two(low: u32, high: u32) -> u64 {
        u64::from(low) | u64::from(high) << 32
    }

    #[test]
    fn a_sample_with_two_chains_and_a_stack() {
        let chain = [b::PERF_CONTEXT_KERNEL, 0xffff_8001, 0xffff_8002, b::PERF_CONTEXT_USER, 0x1000, 0x2000];
        let mut body = vec![1, 0xffff_8001, two(7, 8), 1234, two(3, 0), chain.len() as u64];
        body.extend(chain);
        body.extend([2, 0xb, 0x5, 0x1000]); // 64-bit registers: bp, sp, ip
        body.extend([16, 0x11, 0x22, 8]); // 16 bytes asked, 8 readable
        let bytes = record(9, 1, &body);
        let Record { stamp, body } = decoder().parse(&bytes).unwrap();
        assert_eq!(stamp, Stamp { time_ns: 1234, pid: 7, tid: 8, cpu: 3 });
        assert_eq!(decoder().time_ns(&bytes), Some(1234));
        let Body::Sample(sample) = body else { panic!("{body:?}") };
        assert_eq!((sample.kind, sample.in_kernel, sample.period), (EventKind::Cpu, true, 1_001_001));
        assert_eq!(sample.kernel_chain.iter().collect::<Vec<_>>(), [0xffff_8001, 0xffff_8002]);
        assert_eq!(sample.user_chain.iter().collect::<Vec<_>>(), [0x1000, 0x2000]);
        let registers = UserRegisters { ip: 0x1000, sp: 0x5, bp: 0xb, is_32_bit: false };
        assert_eq!((sample.user_registers, sample.stack), (Some(registers), &0x11_u64.to_ne_bytes()[..]));
    }

    #[test]
    fn what_stands_behind_the_trailer_of_records_about_kernel_code_is_not_read() {
        let garbage = [u64::MAX; 4];
        let trailer = [two(7, 8), 1234, two(3, 0), 1];
        let symbol = [
            0xffff_8000,
            two(64, 1),
            u64::from_ne_bytes(*b"bpf_prog"),
            u64::from_ne_bytes(*b"_x\0\0\0\0\0\0"),
        ];
        let program = [two(1, 5), 0x1122];
        for (kind, body) in [(17, &symbol[..]), (18, &program)] {
            for behind in [&garbage[..0], &garbage] {
                let bytes = record(kind, 0, &[body, &trailer, behind].concat());
                let stamp = Stamp { time_ns: 1234, pid: 7, tid: 8, cpu: 3 };
                assert_eq!(decoder().parse(&bytes).unwrap().stamp, stamp);
                assert_eq!(decoder().time_ns(&bytes), Some(1234));
            }
        }
    }

    #[test]
    fn sizes_inside_a_sample_are_not_believed() {
        let head = [1, 0, two(7, 8), 1234, two(3, 0)];
        let parse = |rest: &[u64]| decoder().parse(&record(9, 2, &[&head[..], rest].concat())).map(|_| ());
        let short = Err(Malformed::Short { kind: 9 });
        assert_eq!(parse(&[0, 0, 0]), Ok(()), "no chain, no registers, no stack");
        assert_eq!(parse(&[u64::MAX, 0, 0]), short, "chain");
        assert_eq!(parse(&[u64::MAX / 8 + 1, 0, 0]), short, "chain whose bytes overflow");
        assert_eq!(parse(&[0, 0, u64::MAX, 1]), short, "stack");
        assert_eq!(parse(&[0, 0, 8, 1, 9]), short, "more readable than asked");
        let unknown = record(9, 2, &[&[99], &head[1..], &[u64::MAX, 0, 0]].concat());
        assert_eq!(decoder().parse(&unknown), Err(Malformed::UnknownEvent { id: 99 }), "sizes fit no kind");
    }

    #[test]
    fn a_sample_that_another_profiler_filled_keeps_our_fields() {
        // A page fault (with an address) and a switch, both with the id of nobody.
        let fault = record(9, 2, &[99, 0x1000, two(7, 8), 1234, 0xaddd, two(3, 0), 0, 0, 0]);
        let switch = record(9, 1, &[99, 0x1000, two(7, 8), 1234, two(3, 0), 0, 0, 0]);
        for (bytes, kind, address, period) in
            [(fault, EventKind::PageFault, Some(0xaddd), 61), (switch, EventKind::Switch, None, 1)]
        {
            assert_eq!(decoder().time_ns(&bytes), None, "of another clock");
            let mut restamped = bytes.clone();
            set_time(&mut restamped, 4321);
            assert_eq!(decoder().parse(&restamped).unwrap().stamp.time_ns, 4321);
            let Record { stamp, body: Body::Sample(sample) } = decoder().parse(&bytes).unwrap() else {
                panic!()
            };
            assert_eq!((sample.kind, sample.address, sample.is_second_hand), (kind, address, true));
            assert_eq!((stamp.cpu, sample.period), (3, period));
        }
        let chain = [b::PERF_CONTEXT_USER, 0x1000];
        let with_room = [&[99, 0x1000, two(7, 8), 1234, two(3, 0), 2][..], &chain, &[0; 9]].concat();
        let bytes = record(9, 1, &with_room);
        let Body::Sample(sample) = decoder().parse(&bytes).unwrap().body else { panic!() };
        assert_eq!((sample.kind, sample.user_chain.len()), (EventKind::Switch, 1));
    }

    #[test]
    fn records_that_any_event_writes() {
        for stream in [&[][..], &[55]] {
            let body = [&[1, 77, two(7, 8), 1234][..], stream, &[two(3, 0), 1]].concat();
            let bytes = record(b::PERF_RECORD_LOST, 0, &body);
            let stamp = Stamp { time_ns: 1234, pid: 7, tid: 8, cpu: 3 };
            assert_eq!(decoder().parse(&bytes), Ok(Record { stamp, body: Body::Lost { count: 77 } }));
            assert_eq!(decoder().time_ns(&bytes), Some(1234));
        }
    }

    #[test]
    fn a_mapping_with_a_build_id() {
        let id = two(u32::from_ne_bytes([4, 0, 0, 0]), u32::from_ne_bytes([1, 2, 3, 4]));
        let mut body = vec![two(7, 8), 0x40_0000, 0x1000, 0x2000, id, 0, 0, two(5, 2)];
        body.extend([u64::from_ne_bytes(*b"/bin/tru"), u64::from_ne_bytes(*b"e\0\0\0\0\0\0\0")]);
        body.extend([two(7, 8), 99, two(1, 0), 4]);
        let bytes = record(b::PERF_RECORD_MMAP2, 2 | 1 << 14, &body);
        let Body::Mapping(mapping) = decoder().parse(&bytes).unwrap().body else { panic!() };
        assert_eq!(mapping.file, FileIdentity::BuildId(BuildId::new(&[1, 2, 3, 4]).unwrap()));
        assert_eq!((mapping.start, mapping.length, mapping.file_offset), (0x40_0000, 0x1000, 0x2000));
        assert_eq!((mapping.path, mapping.protection), (&b"/bin/true"[..], 5));
        assert_eq!((mapping.is_shared, mapping.is_data), (false, false));
    }

    /// Huge pages have the same name whether they are shared or not.
    #[test]
    fn a_shared_mapping_is_told_from_a_private_one() {
        for (flags, is_shared) in [(libc::MAP_SHARED, true), (libc::MAP_PRIVATE, false)] {
            let flags = (flags | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB) as u32;
            let mut body = vec![two(7, 8), 0x40_0000, 0x20_0000, 0, two(0, 15), 9, 0, two(3, flags)];
            body.extend(
                b"/anon_hugepage (deleted)\0\0\0\0\0\0\0\0"
                    .chunks(8)
                    .map(|word| u64::from_ne_bytes(word.try_into().unwrap())),
            );
            body.extend([two(7, 8), 99, two(1, 0), 4]);
            let bytes = record(b::PERF_RECORD_MMAP2, 2 | b::PERF_RECORD_MISC_MMAP_DATA as u16, &body);
            let Body::Mapping(mapping) = decoder().parse(&bytes).unwrap().body else { panic!() };
            assert_eq!((mapping.path, mapping.is_shared), (&b"/anon_hugepage (deleted)"[..], is_shared));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(kind in 0..24_u32, misc: u16, id in 0..6_u64,
                                  body in prop::collection::vec(any::<u8>(), 0..400)) {
            let mut bytes = [&kind.to_ne_bytes()[..], &misc.to_ne_bytes(), &[0, 0], &id.to_ne_bytes()].concat();
            bytes.extend(body);
            for length in [bytes.len(), bytes.len() / 2, 5] {
                let _ = decoder().time_ns(&bytes[..length]);
                let _ = decoder().parse(&bytes[..length]);
            }
        }

        #[test]
        fn small_numbers_reach_every_field(kind in 0..24_u32, misc: u16,
                                           body in prop::collection::vec(0..40_u64, 0..40)) {
            let _ = decoder().parse(&record(kind, misc, &body));
        }
    }
}
