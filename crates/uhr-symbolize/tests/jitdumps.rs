//! Jitdumps of both byte orders, written here field by field as the specification lists them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test's own helpers may fail the test")]

use uhr_model::{FrameMode, RelativeAddress, Unsymbolized};
use uhr_symbolize::{
    Jitdump, JitdumpError, Location, ModuleSource, machine_code, symbolize, symbolize_with_lines,
};

struct Writer {
    bytes: Vec<u8>,
    big_endian: bool,
}

impl Writer {
    fn new(big_endian: bool, flags: u64) -> Self {
        let mut this = Self { bytes: Vec::new(), big_endian };
        for field in [0x4A69_5444, 1, 40, 62, 0, 1234] {
            this.u32(field);
        }
        this.u64(99);
        this.u64(flags);
        this
    }

    fn u32(&mut self, value: u32) {
        self.bytes.extend(if self.big_endian { value.to_be_bytes() } else { value.to_le_bytes() });
    }

    fn u64(&mut self, value: u64) {
        self.bytes.extend(if self.big_endian { value.to_be_bytes() } else { value.to_le_bytes() });
    }

    fn record(&mut self, id: u32, body: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.u32(id);
        self.u32(0);
        self.u64(77);
        body(self);
        let size = (self.bytes.len() - start) as u32;
        let size = if self.big_endian { size.to_be_bytes() } else { size.to_le_bytes() };
        self.bytes[start + 4..start + 8].copy_from_slice(&size);
    }

    fn load(&mut self, start: u64, size: u64, index: u64, name: &str) {
        self.record(0, |record| {
            record.u32(1234);
            record.u32(1234);
            for field in [start, start, size, index] {
                record.u64(field);
            }
            record.bytes.extend(name.as_bytes());
            record.bytes.push(0);
            record.bytes.extend(vec![0x90; size as usize]);
        });
    }

    fn move_code(&mut self, old: u64, new: u64, size: u64, index: u64) {
        self.record(1, |record| {
            record.u32(1234);
            record.u32(1234);
            for field in [new, old, new, size, index] {
                record.u64(field);
            }
        });
    }

    fn lines(&mut self, start: u64, lines: &[(u64, u32, &[u8])]) {
        self.record(2, |record| {
            record.u64(start);
            record.u64(lines.len() as u64);
            for (address, line, file) in lines {
                record.u64(*address);
                record.u32(*line);
                record.u32(0);
                record.bytes.extend(*file);
                record.bytes.push(0);
            }
        });
    }
}

fn place(dump: &Jitdump<'_>, address: u64) -> Result<(String, Option<String>, Option<u32>), Unsymbolized> {
    let answer = symbolize(&ModuleSource::Jitdump(dump), &[RelativeAddress(address)]);
    let found = answer.results[0].clone().map_err(|unnamed| unnamed.reason)?;
    let Location { function, file, line } = found.locations[0].clone();
    Ok((function.unwrap(), file, line))
}

#[test]
fn both_byte_orders_and_both_clocks() {
    for (big_endian, flags) in [(false, 0), (false, 1), (true, 0), (true, 1)] {
        let mut file = Writer::new(big_endian, flags);
        file.lines(0x1000, &[(0x1000, 7, b"/src/a.js"), (0x1010, 9, b"\xff"), (0x1020, 3, b"/src/b.js")]);
        file.load(0x1000, 0x40, 1, "hot");
        file.record(4, |record| record.u64(0));
        file.load(0x2000, 0x40, 2, "py::f:/src/f.py");
        file.load(0x1020, 0x10, 3, "newer");
        file.move_code(0x1000, 0x5000, 0x40, 1);
        file.record(3, |_| ());
        file.load(0x9000, 0x10, 4, "behind the close record");
        let dump = Jitdump::parse(&file.bytes).unwrap();
        assert_eq!((dump.has_arch_timestamps(), dump.skipped_records()), (flags == 1, 0));
        let lines = |file: &str, line| (Some(file.to_owned()), Some(line));
        let expect = |function: &str, (file, line)| Ok((function.to_owned(), file, line));
        assert_eq!(place(&dump, 0x1000), expect("hot", lines("/src/a.js", 7)));
        assert_eq!(place(&dump, 0x101f), expect("hot", lines("/src/a.js", 9)));
        assert_eq!(place(&dump, 0x1020), expect("newer", (None, None)));
        assert_eq!(place(&dump, 0x1030), expect("hot", lines("/src/b.js", 3)));
        assert_eq!(place(&dump, 0x5012), expect("hot", lines("/src/a.js", 9)));
        assert_eq!(place(&dump, 0x1040), Err(Unsymbolized::NoSymbol));
        assert_eq!(place(&dump, 0x9000), Err(Unsymbolized::NoSymbol));
        assert_eq!(place(&dump, 0x2001), expect("f", (Some("/src/f.py".to_owned()), None)));
        let answer = symbolize(&ModuleSource::Jitdump(&dump), &[RelativeAddress(0x2001)]);
        assert_eq!(answer.results[0].as_ref().unwrap().mode, Some(FrameMode::Interpreter));
    }
}

#[test]
fn all_lines_of_a_function_that_is_wanted() {
    let mut file = Writer::new(false, 0);
    file.lines(0x1000, &[(0x1000, 7, b"/src/a.js"), (0x1010, 9, b"\xff"), (0x1050, 4, b"behind")]);
    file.load(0x1000, 0x40, 1, "hot");
    file.lines(0x2000, &[(0x2000, 1, b"/src/cold.js")]);
    file.load(0x2000, 0x40, 2, "cold");
    file.load(0x3000, 0x40, 3, "without lines");
    file.move_code(0x1000, 0x5000, 0x40, 1);
    let dump = Jitdump::parse(&file.bytes).unwrap();
    let asked = [0x1001, 0x2001, 0x3001, 0x5001, 0x1020, 0x9000].map(RelativeAddress);
    let wants = |function: std::ops::Range<RelativeAddress>| {
        assert_eq!(function.end, RelativeAddress(function.start.0 + 0x40));
        function.start != RelativeAddress(0x2000)
    };
    let answer = symbolize_with_lines(&ModuleSource::Jitdump(&dump), &asked, &wants);
    let lines: Vec<(u64, Option<(String, u32)>)> = answer
        .lines
        .iter()
        .map(|start| {
            let place = start.locations.first().map(|place| {
                assert_eq!(place.function.as_deref(), Some("hot"));
                (place.file.clone().unwrap(), place.line.unwrap())
            });
            (start.address.0, place)
        })
        .collect();
    let at = |address, line| (address, Some(("/src/a.js".to_owned(), line)));
    assert_eq!(
        lines,
        [at(0x1000, 7), at(0x1010, 9), (0x1040, None), at(0x5000, 7), at(0x5010, 9), (0x5040, None)]
    );
}

/// What is handed out of lines that nobody asked for one by one: start, file and line.
fn all_lines(dump: &Jitdump<'_>, address: u64) -> Vec<(u64, Option<String>, Option<u32>)> {
    let source = ModuleSource::Jitdump(dump);
    let answer = symbolize_with_lines(&source, &[RelativeAddress(address)], &|_| true);
    let place = |location: Option<&Location>| {
        location.map_or((None, None), |location| (location.file.clone(), location.line))
    };
    let rows = answer.lines.iter().map(|start| (start.address.0, place(start.locations.first())));
    rows.map(|(address, (file, line))| (address, file, line)).collect()
}

#[test]
fn of_lines_at_one_address_the_last_counts_and_none_is_of_code_that_was_replaced() {
    let mut file = Writer::new(false, 0);
    file.lines(0x1000, &[(0x1000, 7, b"/a"), (0x1000, 8, b"\xff"), (0x1010, 9, b""), (0x1020, 3, b"/b")]);
    file.load(0x1000, 0x40, 1, "f");
    file.load(0x1020, 0x20, 2, "newer");
    let dump = Jitdump::parse(&file.bytes).unwrap();
    let some = |file: &str, line| (Some(file.to_owned()), Some(line));
    for (address, (file, line)) in [(0x1000, some("/a", 8)), (0x1010, (None, Some(9)))] {
        assert_eq!(place(&dump, address), Ok(("f".to_owned(), file, line)));
    }
    let expected = [(0x1000, Some("/a".to_owned()), Some(8)), (0x1010, None, Some(9)), (0x1040, None, None)];
    assert_eq!(all_lines(&dump, 0x1000), expected);
}

#[test]
fn long_names_and_many_lines_cost_no_memory() {
    let (long_file, longest_path) = ("f".repeat(1 << 20), "p".repeat(4096));
    let same = (1..300_000).map(|at| (0x1000 + at, 1, &b"\xff"[..]));
    for (file, function) in
        [(long_file.as_str(), "f"), (&longest_path, "f"), ("f", &"n".repeat(60_000)), ("f", "f")]
    {
        let mut dump = Writer::new(false, 0);
        let first = std::iter::once((0x1000, 1, file.as_bytes()));
        dump.lines(0x1000, &first.chain(same.clone()).collect::<Vec<_>>());
        dump.load(0x1000, 300_000, 1, function);
        let dump = Jitdump::parse(&dump.bytes).unwrap();
        let lines = all_lines(&dump, 0x1000);
        let bytes: usize = lines.iter().filter_map(|(_, file, _)| file.as_ref()).map(String::len).sum();
        assert!(lines.len() <= (1 << 17) + 1 && bytes <= 16 << 20, "{} {bytes}", lines.len());
        assert!(place(&dump, 0x1010).is_ok());
    }
}

#[test]
fn code_is_there_as_it_was_written() {
    let mut file = Writer::new(false, 0);
    file.load(0x1000, 0x40, 1, "hot");
    file.record(0, |record| {
        [1234, 1234].iter().for_each(|&field| record.u32(field));
        [0x3000, 0x3000, 0x40, 2].iter().for_each(|&field| record.u64(field));
        record.bytes.extend(b"without its code\0");
    });
    file.move_code(0x1000, 0x5000, 0x40, 1);
    let dump = Jitdump::parse(&file.bytes).unwrap();
    let source = ModuleSource::Jitdump(&dump);
    let range = |start, end| RelativeAddress(start)..RelativeAddress(end);
    let asked = [
        range(0x1000, 0x1040),
        range(0x1010, 0x1041),
        range(0x3000, 0x3040),
        range(0x5000, 0x5040),
        range(9, 1),
    ];
    assert_eq!(machine_code(&source, &asked), [Some(vec![0x90; 0x40]), None, None, None, None]);
    let end = |at| symbolize(&source, &[RelativeAddress(at)]).results[0].as_ref().unwrap().end;
    assert_eq!([end(0x1001), end(0x5001)], [Some(RelativeAddress(0x1040)), Some(RelativeAddress(0x5040))]);
}

#[test]
fn damage_is_counted() {
    let mut file = Writer::new(false, 0);
    file.load(0x1000, 0x40, 1, "first");
    file.record(0, |record| record.u32(1));
    file.lines(0x2000, &[]);
    file.record(2, |record| [0x2000, u64::MAX].iter().for_each(|&field| record.u64(field)));
    file.move_code(0x7777, 0x8888, 1, 99);
    file.load(0x2000, 0x40, 2, "second");
    let whole = file.bytes.len();
    file.load(0x3000, 0x40, 3, "cut");
    let dump = Jitdump::parse(&file.bytes[..whole + 30]).unwrap();
    assert_eq!(dump.skipped_records(), 4);
    assert_eq!(place(&dump, 0x1000), Ok(("first".to_owned(), None, None)));
    assert_eq!(place(&dump, 0x2000), Ok(("second".to_owned(), None, None)));
    assert_eq!(place(&dump, 0x3000), Err(Unsymbolized::NoSymbol));

    assert_eq!(Jitdump::parse(b"").unwrap_err(), JitdumpError::NotJitdump);
    assert_eq!(Jitdump::parse(b"\x7fELF and more").unwrap_err(), JitdumpError::NotJitdump);
    file.bytes[4] = 2;
    assert_eq!(Jitdump::parse(&file.bytes).unwrap_err(), JitdumpError::Version(2));
    let empty = Writer::new(false, 0).bytes;
    assert_eq!(place(&Jitdump::parse(&empty).unwrap(), 1), Err(Unsymbolized::NoJitMap));
}
