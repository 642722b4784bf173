//! What the walker in the kernel goes by: rows of call frame information of each file, and where each process has its code.
//! Filled from user space while the programs run; nothing that they can find is ever changed, only replaced.

mod packed;
mod room;

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, Object};

pub use self::packed::PackedRows;
use self::room::Room;
use crate::abi;
use crate::mapped::Mapped;

const CHUNK_BYTES: usize = abi::CHUNK_WORDS * 8;

/// The rows of one file in the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TableId(pub(crate) u32);

/// How code is walked out of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WalkBy {
    /// Not in the kernel yet: the stack is copied.
    Nothing,
    /// Nor ever: how is found by reading the code.
    ReadingCode,
    /// By these rows.
    Rows(TableId),
    /// By these rows, and by frame pointers where there is none.
    RowsOrFramePointers(TableId),
    /// By frame pointers.
    FramePointers,
}

/// An executable mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Code {
    /// Where.
    pub range: Range<u64>,
    /// What its addresses are above those that the file states.
    pub bias: u64,
    /// How to walk.
    pub by: WalkBy,
    /// What the first function of a goroutine returns to, where that is known.
    pub root: Option<u64>,
}

impl Code {
    /// As the walker finds it.
    pub(crate) fn entry(&self) -> abi::Code {
        let (table, how) = match self.by {
            WalkBy::Nothing => (0, abi::BY_NOTHING),
            WalkBy::ReadingCode => (0, abi::BY_READING_CODE),
            WalkBy::Rows(id) => (id.0, abi::BY_ROWS),
            WalkBy::RowsOrFramePointers(id) => (id.0, abi::BY_ROWS | abi::BY_FRAME_POINTERS),
            WalkBy::FramePointers => (0, abi::BY_FRAME_POINTERS),
        };
        let Range { start, end } = self.range;
        abi::Code { start, end, bias: self.bias, root: self.root.unwrap_or(0), table, how }
    }
}

/// The tables of a running [`Sampler`](crate::Sampler).
#[derive(Debug)]
pub struct Tables {
    outer: MapHandle,
    tables: MapHandle,
    spaces: MapHandle,
    codes: Mapped,
    /// Chunks of words that were made so far.
    chunks: Vec<MapHandle>,
    words: Room,
    entries: Room,
    numbers: Room,
    /// Words of each table.
    used: HashMap<TableId, Range<u32>>,
    /// Entries of `codes` of each process.
    processes: HashMap<u32, Range<u32>>,
    /// How many were written so far.
    version: u32,
}

impl Tables {
    pub(crate) fn of(object: &Object) -> io::Result<Self> {
        let handle = |name: &str| {
            let map = object.maps().find(|map| map.name() == name).ok_or(io::ErrorKind::NotFound)?;
            MapHandle::try_from(&map).map_err(|error| io::Error::other(error.to_string()))
        };
        let codes = handle("codes")?;
        Ok(Self {
            outer: handle("chunks")?,
            tables: handle("tables")?,
            spaces: handle("spaces")?,
            codes: Mapped::map(codes.as_fd(), abi::CODES * size_of::<abi::Code>(), 0, true)?,
            chunks: Vec::new(),
            words: Room::new((abi::CHUNKS * abi::CHUNK_WORDS) as u32),
            entries: Room::new(abi::CODES as u32),
            numbers: Room::new(abi::TABLES as u32),
            used: HashMap::new(),
            processes: HashMap::new(),
            version: 0,
        })
    }

    /// Takes in the rows of a file. `None`: there is none, or no more room.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn add(&mut self, rows: &PackedRows) -> io::Result<Option<TableId>> {
        if rows.is_empty() {
            return Ok(None);
        }
        let Some(piece) = self.words.take(rows.most_words()) else { return Ok(None) };
        let Some(number) = self.numbers.take(1) else {
            self.words.give_up(piece);
            return Ok(None);
        };
        let id = TableId(number.start);
        let (table, runs) = rows.placed(piece.start);
        let mut written = runs.iter().try_for_each(|(at, words)| self.write_words(*at, words));
        if written.is_ok() {
            written = update(&self.tables, &id.0.to_ne_bytes(), abi::bytes(&table));
        }
        self.used.insert(id, piece);
        if written.is_err() {
            self.remove(id);
        }
        written.map(|()| Some(id))
    }

    fn write_words(&mut self, at: usize, words: &[u64]) -> io::Result<()> {
        let (mut at, mut words) = (at, words);
        while !words.is_empty() {
            let (number, within) = (at / abi::CHUNK_WORDS, at % abi::CHUNK_WORDS);
            let (now, later) = words.split_at(words.len().min(abi::CHUNK_WORDS - within));
            self.chunk(number)?.write(within * 8, abi::words(now));
            (at, words) = (at + now.len(), later);
        }
        Ok(())
    }

    /// A chunk, mapped for a moment: what stays mapped counts as our own memory.
    fn chunk(&mut self, number: usize) -> io::Result<Mapped> {
        while self.chunks.len() <= number {
            let options = libbpf_sys::bpf_map_create_opts {
                sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
                map_flags: libbpf_sys::BPF_F_MMAPABLE,
                ..Default::default()
            };
            let chunk = MapHandle::create(MapType::Array, Some("chunk"), 4, CHUNK_BYTES as u32, 1, &options)
                .map_err(|error| io::Error::other(error.to_string()))?;
            let key = self.chunks.len() as u32;
            update(&self.outer, &key.to_ne_bytes(), &chunk.as_fd().as_raw_fd().to_ne_bytes())?;
            self.chunks.push(chunk);
        }
        Mapped::map(self.chunks[number].as_fd(), CHUNK_BYTES, 0, true)
    }

    /// Gives up the rows of a file. No process may have it mapped any more.
    pub fn remove(&mut self, id: TableId) {
        if let Some(words) = self.used.remove(&id) {
            self.words.give_up(words);
            self.numbers.give_up(id.0..id.0 + 1);
        }
    }

    /// Says where a process has its code, as it was at `as_of_ns` (CLOCK_MONOTONIC): sorted, without overlaps; and whether its
    /// stacks are deep, where they have to be copied. False: there is no room for it.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn set_space(&mut self, pid: u32, as_of_ns: u64, is_deep: bool, codes: &[Code]) -> io::Result<bool> {
        if codes.len() > abi::CODES_OF_ONE {
            self.forget(pid);
            return Ok(false);
        }
        let Some(piece) = self.entries.take(codes.len().max(1) as u32) else {
            self.forget(pid);
            return Ok(false);
        };
        for (at, code) in piece.clone().zip(codes) {
            self.codes.write(at as usize * size_of::<abi::Code>(), abi::bytes(&code.entry()));
        }
        self.version = self.version.wrapping_add(1);
        let (first, count, version) = (piece.start, codes.len() as u32, self.version);
        let space = abi::Space { as_of_ns, first, count, version, is_deep: is_deep.into() };
        let updated = update(&self.spaces, &pid.to_ne_bytes(), abi::bytes(&space));
        if let Some(old) = self.processes.insert(pid, piece) {
            self.entries.give_up(old);
        }
        updated.map(|()| true)
    }

    /// Forgets a process.
    pub fn forget(&mut self, pid: u32) {
        if let Some(piece) = self.processes.remove(&pid) {
            // Gone already, if the kernel had no room for it.
            let _ = self.spaces.delete(&pid.to_ne_bytes());
            self.entries.give_up(piece);
        }
    }
}

fn update(map: &MapHandle, key: &[u8], value: &[u8]) -> io::Result<()> {
    map.update(key, value, MapFlags::ANY).map_err(|error| io::Error::other(error.to_string()))
}
