//! The other side of `kernel/walker.c`: a process with its memory and its code, as the programs in the kernel would find them.

use std::io::{BufReader, BufWriter, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use uhr_unwind::SimpleRow;

use crate::abi::{self, CHUNK_WORDS, Plain};
use crate::tables::{Code, PackedRows, TableId, WalkBy};
use crate::{Event, Sample, WALKS, WalkedFrame};

const MEMORY: u32 = 1;
const FORGET: u32 = 2;
const WORDS: u32 = 3;
const TABLE: u32 = 4;
const CODES: u32 = 5;
const SPACE: u32 = 6;
const SETTINGS: u32 = 7;
const CLEAR: u32 = 8;
const RING: u32 = 9;
const SAMPLE: u32 = 10;

/// The process that is walked.
const PID: u32 = 7;
/// When its mappings were written.
pub(super) const AS_OF_NS: u64 = 1000;
pub(super) const PAGE: u64 = 4096;

/// The walker's program, compiled once.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/hosted/kernel");
        let program = Path::new(env!("OUT_DIR")).join(format!("walker-{}", std::process::id()));
        // The compiler that linked this test: its sanitizers come with it, clang's are a package of their own.
        let done = Command::new("cc")
            .args(["-std=gnu11", "-g", "-O1", "-Wall", "-Werror", "-Wno-attributes", "-I"])
            .arg(&folder)
            .args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"])
            .arg(folder.join("walker.c"))
            .arg("-o")
            .arg(&program)
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        // Tests that run at the same time each compile their own.
        let kept = program.with_file_name("walker");
        std::fs::rename(&program, &kept).unwrap();
        kept
    })
}

/// Registers to walk from.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct From {
    pub(super) ip: u64,
    pub(super) sp: u64,
    pub(super) bp: u64,
}

/// How samples are taken.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct How {
    /// By frame pointers alone, as `--unwind fp` does.
    pub(super) by_frame_pointers: bool,
    /// The stack is copied, whatever the walk says.
    pub(super) copies_too: bool,
    /// The thread waits, and another walks its stack.
    pub(super) from_outside: bool,
    /// Frames of the kernel's stack.
    pub(super) kernel_frames: u16,
    /// When the thread last executed a program.
    pub(super) exec_ns: u64,
    /// Bytes of stack to copy, if not as many as usual.
    pub(super) copy_bytes: Option<u32>,
    /// What waits in the ring, of 8 MiB.
    pub(super) bytes_in_ring: u64,
}

/// A machine with one process.
pub(super) struct Machine {
    child: Child,
    input: BufWriter<ChildStdin>,
    output: BufReader<ChildStdout>,
    next_word: u32,
    next_table: u32,
    version: u32,
    codes: Vec<Code>,
    /// The process was seen to have deep stacks.
    pub(super) is_deep: bool,
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Machine {
    pub(super) fn new() -> Self {
        let mut child = Command::new(program()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        Self {
            input: BufWriter::new(child.stdin.take().unwrap()),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
            next_word: 0,
            next_table: 0,
            version: 0,
            codes: Vec::new(),
            is_deep: false,
        }
    }

    fn ask(&mut self, kind: u32, number: u32, at: u64, content: &[u8]) {
        let head = [u64::from(kind) | u64::from(number) << 32, at, content.len() as u64];
        let sent = self.input.write_all(abi::words(&head)).and_then(|()| self.input.write_all(content));
        sent.expect("the walker is gone; its words are above");
    }

    /// Everything anew.
    pub(super) fn clear(&mut self) {
        self.ask(CLEAR, 0, 0, &[]);
        self.ask(FORGET, 0, 0, &[]);
        (self.next_word, self.next_table) = (0, 0);
        self.codes.clear();
    }

    /// From here on words of tables are put.
    pub(super) fn skip_to_word(&mut self, word: u32) {
        self.next_word = word;
    }

    /// Takes in rows, as [`Tables::add`](crate::Tables::add) does.
    pub(super) fn table(&mut self, rows: &PackedRows) -> TableId {
        let (table, runs) = rows.placed(self.next_word);
        for (at, words) in runs {
            self.put_words(at, &words);
        }
        self.next_word += rows.most_words();
        self.put_table(&table)
    }

    pub(super) fn put_words(&mut self, at: usize, words: &[u64]) {
        assert!(at + words.len() <= abi::CHUNKS * CHUNK_WORDS);
        self.ask(WORDS, 0, at as u64, abi::words(words));
    }

    pub(super) fn put_table(&mut self, table: &abi::Table) -> TableId {
        self.ask(TABLE, self.next_table, 0, abi::bytes(table));
        self.next_table += 1;
        TableId(self.next_table - 1)
    }

    /// Rows by stated address, with the end of the last.
    pub(super) fn rows(&mut self, rows: &[(u64, SimpleRow)]) -> TableId {
        let packed = PackedRows::new(|each| rows.iter().for_each(|&(address, row)| each(address, row)));
        self.table(&packed)
    }

    /// Maps code, above all that was mapped before; its stated addresses are those of the process.
    pub(super) fn map(&mut self, range: Range<u64>, by: WalkBy) -> &mut Code {
        self.codes.push(Code { range, bias: 0, by, root: None });
        self.codes.last_mut().unwrap()
    }

    /// Puts other code in the place of what was mapped last.
    pub(super) fn remap(&mut self, range: Range<u64>, by: WalkBy) {
        self.codes.pop();
        self.map(range, by);
    }

    /// Nothing is mapped any more; tables stay.
    pub(super) fn forget_code(&mut self) {
        self.codes.clear();
    }

    /// Puts memory, in whole pages: zeroes, where the words end.
    pub(super) fn put_stack(&mut self, from: u64, words: &[u64]) {
        let start = from & !(PAGE - 1);
        let end = (from + words.len() as u64 * 8).next_multiple_of(PAGE);
        let mut bytes = vec![0; (end - start) as usize];
        let at = (from - start) as usize;
        bytes[at..at + words.len() * 8].copy_from_slice(abi::words(words));
        self.put_memory(start, &bytes);
    }

    pub(super) fn put_memory(&mut self, at: u64, bytes: &[u8]) {
        self.ask(MEMORY, 0, at, bytes);
    }

    pub(super) fn forget_memory(&mut self) {
        self.ask(FORGET, 0, 0, &[]);
    }

    /// Tells the walker where the process has its code.
    pub(super) fn put_space(&mut self) {
        let entries: Vec<abi::Code> = self.codes.iter().map(Code::entry).collect();
        self.put_entries(0, &entries);
        self.version += 1;
        let (count, version) = (entries.len() as u32, self.version);
        self.put_raw_space(&abi::Space {
            as_of_ns: AS_OF_NS,
            first: 0,
            count,
            version,
            is_deep: self.is_deep.into(),
        });
    }

    pub(super) fn put_entries(&mut self, at: u64, entries: &[abi::Code]) {
        let bytes: Vec<u8> = entries.iter().flat_map(abi::bytes).copied().collect();
        self.ask(CODES, 0, at, &bytes);
    }

    pub(super) fn put_raw_space(&mut self, space: &abi::Space) {
        self.ask(SPACE, PID, 0, abi::bytes(space));
    }

    /// Takes a sample by rows.
    pub(super) fn walk(&mut self, from: From) -> Taken {
        self.put_space();
        self.sample(from, How::default())
    }

    /// Takes a sample of the process as it was put.
    pub(super) fn sample(&mut self, from: From, how: How) -> Taken {
        let settings = abi::Settings {
            copy_bytes: how.copy_bytes.unwrap_or(abi::COPY_BYTES),
            follow_frame_pointers: how.by_frame_pointers.into(),
            walks_by_rows: 1,
            copies_too: how.copies_too.into(),
            ..zeroed()
        };
        self.ask(SETTINGS, 0, 0, abi::bytes(&settings));
        self.ask(RING, 0, how.bytes_in_ring, &[]);
        let head = abi::Head { kind: abi::CPU, cpu: 0, time_ns: 0, pid: PID, tid: PID };
        let From { ip, sp, bp } = from;
        let kernel_frames = how.kernel_frames;
        let wanted = abi::Sample { head, ip, sp, bp, kernel_frames, ..zeroed() };
        self.ask(SAMPLE, how.from_outside.into(), how.exec_ns, abi::bytes(&wanted));
        self.input.flush().expect("the walker is gone; its words are above");
        let mut length = [0; 8];
        self.output.read_exact(&mut length).expect("the walker is gone; its words are above");
        let mut event = vec![0; u64::from_ne_bytes(length) as usize];
        self.output.read_exact(&mut event).unwrap();
        Taken { event }
    }
}

/// A value of the C side, all of it 0.
fn zeroed<T: Plain>() -> T {
    abi::read(&vec![0; size_of::<T>()]).unwrap().0
}

/// An event that the walker sent.
pub(super) struct Taken {
    pub(super) event: Vec<u8>,
}

impl Taken {
    pub(super) fn sample(&self) -> Sample<'_> {
        match Event::parse(&self.event) {
            Some(Event::Sample(sample)) => sample,
            other => panic!("{other:?}"),
        }
    }

    /// The frames of a walk.
    pub(super) fn frames(&self) -> Vec<WalkedFrame> {
        self.sample().frames().collect()
    }

    /// Their addresses.
    pub(super) fn addresses(&self) -> Vec<u64> {
        self.frames().iter().map(|frame| frame.address).collect()
    }

    /// How the walk ended, in the words of the report.
    pub(super) fn ending(&self) -> &'static str {
        WALKS[usize::from(abi::read::<abi::Sample>(&self.event).unwrap().0.ending)].1
    }
}
