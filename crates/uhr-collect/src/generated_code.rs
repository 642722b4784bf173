//! Writes the code of an eBPF program as evidence, in the form in which runtimes write theirs: a jitdump. That form is
//! `tools/perf/Documentation/jitdump-specification.txt` of the Linux sources; other tools read it too.

use uhr_ebpf::{ProgramCode, ProgramFunction, ProgramLine};

const MAGIC: u32 = 0x4A69_5444;
const VERSION: u32 = 1;
const HEADER_BYTES: u32 = 40;
const RECORD_HEADER_BYTES: usize = 16;
const CODE_LOAD: u32 = 0;
const CODE_DEBUG_INFO: u32 = 2;
/// Stands for the name of the entry before.
const SAME_FILE: &[u8] = b"\xff\0";
/// EM_X86_64, EM_AARCH64 (include/uapi/linux/elf-em.h).
const MACHINE: u32 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };

/// A jitdump of a program's functions, with their lines. A function whose code is not known has a name and a size alone.
pub(crate) fn jitdump_of(code: &ProgramCode) -> Vec<u8> {
    let mut dump = Vec::new();
    for word in [MAGIC, VERSION, HEADER_BYTES, MACHINE, 0, 0] {
        dump.extend(word.to_ne_bytes());
    }
    // When it was made, and flags.
    dump.extend([0u8; 16]);
    for (index, (function, bytes)) in (0u64..).zip(&code.functions) {
        let first = code.lines.partition_point(|line| line.address < function.start);
        let behind = code.lines.partition_point(|line| line.address < function.end);
        let lines = code.lines.get(first..behind).unwrap_or_default();
        if !lines.is_empty() {
            record(&mut dump, CODE_DEBUG_INFO, &debug_info(function, lines));
        }
        record(&mut dump, CODE_LOAD, &load(function, bytes, index));
    }
    dump
}

fn record(dump: &mut Vec<u8>, kind: u32, body: &[u8]) {
    dump.extend(kind.to_ne_bytes());
    dump.extend(((RECORD_HEADER_BYTES + body.len()) as u32).to_ne_bytes());
    dump.extend(0u64.to_ne_bytes());
    dump.extend(body);
}

fn load(function: &ProgramFunction, bytes: &[u8], index: u64) -> Vec<u8> {
    // Process and thread: the kernel's own.
    let mut body = vec![0u8; 8];
    for word in [function.start, function.start, function.end - function.start, index] {
        body.extend(word.to_ne_bytes());
    }
    put_text(&mut body, &function.name);
    body.extend(bytes);
    body
}

fn debug_info(function: &ProgramFunction, lines: &[ProgramLine]) -> Vec<u8> {
    // Columns make several entries of a line.
    let is_other = |at: &usize| {
        let before = at.checked_sub(1).and_then(|before| lines.get(before));
        before.is_none_or(|before| (before.line, &before.file) != (lines[*at].line, &lines[*at].file))
    };
    let entries: Vec<usize> = (0..lines.len()).filter(is_other).collect();
    let mut body = function.start.to_ne_bytes().to_vec();
    body.extend((entries.len() as u64).to_ne_bytes());
    let mut file = None;
    for line in entries.into_iter().map(|at| &lines[at]) {
        body.extend(line.address.to_ne_bytes());
        body.extend(line.line.to_ne_bytes());
        body.extend(0u32.to_ne_bytes());
        match file.replace(&line.file) {
            Some(before) if *before == line.file => body.extend(SAME_FILE),
            _ => put_text(&mut body, &line.file),
        }
    }
    body
}

fn put_text(body: &mut Vec<u8>, text: &str) {
    body.extend(text.bytes().filter(|&byte| byte != 0));
    body.push(0);
}

#[cfg(test)]
mod tests {
    use uhr_model::RelativeAddress;
    use uhr_symbolize::{Jitdump, ModuleSource, machine_code, symbolize};

    use super::*;

    fn function(start: u64, end: u64, name: &str) -> ProgramFunction {
        ProgramFunction { start, end, name: name.to_owned() }
    }

    #[test]
    fn whoever_reads_jitdumps_reads_programs() {
        let line = |address, line, text: &str| ProgramLine {
            address,
            file: "/src/p.bpf.c".to_owned(),
            line,
            text: text.to_owned(),
        };
        let code = ProgramCode {
            functions: vec![
                (function(0x9000, 0x9004, "bpf_prog_0011223344556677_main"), vec![1, 2, 3, 4]),
                (function(0x8000, 0x8008, "bpf_prog_8899aabbccddeeff_sub"), (0..8).collect()),
                (function(0xa000, 0xa008, "bpf_prog_8899aabbccddeeff_gone"), Vec::new()),
            ],
            lines: vec![
                line(0x8000, 3, "a"),
                line(0x8002, 3, "a"),
                line(0x8004, 4, "b"),
                line(0x9000, 9, "c"),
            ],
        };
        let bytes = jitdump_of(&code);
        let dump = Jitdump::parse(&bytes).unwrap();
        assert_eq!(dump.skipped_records(), 0);
        let source = ModuleSource::Jitdump(&dump);
        let place = |address| {
            let found = symbolize(&source, &[RelativeAddress(address)]).results[0].clone().unwrap();
            let place = found.locations[0].clone();
            assert!(place.line.is_none() || place.file.as_deref() == Some("/src/p.bpf.c"), "{place:?}");
            (place.function.unwrap(), place.line)
        };
        assert_eq!(place(0x9003), ("bpf_prog_0011223344556677_main".to_owned(), Some(9)));
        assert_eq!(place(0x8003), ("bpf_prog_8899aabbccddeeff_sub".to_owned(), Some(3)));
        assert_eq!(place(0x8007).1, Some(4));
        assert_eq!(place(0xa001), ("bpf_prog_8899aabbccddeeff_gone".to_owned(), None));
        let ranges =
            code.functions.iter().map(|(one, _)| RelativeAddress(one.start)..RelativeAddress(one.end));
        let own = machine_code(&source, &ranges.collect::<Vec<_>>());
        assert_eq!(own, [Some(vec![1, 2, 3, 4]), Some((0..8).collect()), None]);
    }
}
