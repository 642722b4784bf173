//! Rows of aarch64 code: of a cross compiler's programs and of its C library held against what readelf says, row by row, and
//! walked by over the stack of a program that runs under QEMU.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use uhr_model::object::ElfFile;
use uhr_unwind::{Aarch64Saved, SimpleRow, UnwindModule};

use crate::readelf::{Rows, hex, rows_of_aarch64};
use crate::target::compile;

const GCC: &str = "aarch64-linux-gnu-gcc";

/// Whether this tool is here; the test is left out, loudly, where it is not.
fn has(tool: &str) -> bool {
    let is_there = Command::new(tool).arg("--version").output().is_ok();
    if !is_there {
        eprintln!("SKIPPED aarch64: there is no {tool} here");
    }
    is_there
}

fn output(command: &mut Command) -> Vec<u8> {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    done.stdout
}

fn text(command: &mut Command) -> String {
    String::from_utf8(output(command)).unwrap()
}

fn our_rows(file: &Path) -> Rows {
    let elf = ElfFile::parse(&std::fs::read(file).unwrap()[..]).unwrap();
    let mut rows = Rows::new();
    UnwindModule::read(&File::open(file).unwrap(), &elf).simple_rows(&mut |address, row| {
        assert!(rows.last_key_value().is_none_or(|(&last, _)| last < address));
        rows.insert(address, row);
    });
    rows
}

fn row_at(rows: &Rows, address: u64) -> SimpleRow {
    rows.range(..=address).next_back().map_or(SimpleRow::Uncovered, |(_, row)| *row)
}

/// Holds every row of a file against the tool's, and gives how many there are, and how many are too complex.
fn compare(file: &Path) -> (usize, usize) {
    let (ours, theirs) = (our_rows(file), rows_of_aarch64(file));
    let entry = u64::from_le_bytes(std::fs::read(file).unwrap()[24..32].try_into().unwrap());
    for &address in ours.keys().chain(theirs.keys()) {
        let (own, expected) = (row_at(&ours, address), row_at(&theirs, address));
        // Of where the program begins we know more than is written there.
        let is_entry = own == SimpleRow::First && address.abs_diff(entry) < 128;
        assert!(own == expected || is_entry, "{}: {address:#x}: {own:?}, not {expected:?}", file.display());
    }
    (theirs.len(), theirs.values().filter(|row| **row == SimpleRow::TooComplex).count())
}

/// Everything that changes how a frame is left.
const FRAMES: &str = r#"
    #include <stdint.h>
    #include <alloca.h>
    #define FAR __attribute__((noinline,noclone))
    FAR int seen(void *);
    FAR int leaf(int x) { return x * 3; }
    FAR int small(int x) { return seen(&x) + x; }
    FAR int large(int x) { char bytes[600000]; bytes[x] = 1; return seen(bytes) + x; }
    FAR int sized(int x) { char *bytes = alloca(x); return seen(bytes) + x; }
    FAR int aligned(int x) { _Alignas(256) char bytes[256]; bytes[x] = 1; return seen(bytes) + x; }
    FAR int never(int x) { seen(&x); __builtin_trap(); }
    FAR int early(int x) { if (x < 3) return x; int y = seen(&x); return y * seen(&y) + x; }
    int seen(void *at) { return *(volatile char *)at; }
    int main(int argc, char **argv) {
        if (argc > 7) return never(argc);
        return leaf(argc) + small(argc) + large(argc) + sized(argc) + aligned(argc) + early(argc); }
"#;

#[test]
fn aarch64_rows_of_every_kind_of_frame_are_the_tools() {
    if !has(GCC) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for flags in [
        &["-O2"][..],
        &["-O2", "-fomit-frame-pointer"],
        &["-O0"],
        &["-O2", "-mbranch-protection=pac-ret"],
        &["-O2", "-mbranch-protection=pac-ret+leaf", "-fomit-frame-pointer"],
        &["-O2", "-fstack-clash-protection", "-mno-omit-leaf-frame-pointer"],
    ] {
        let command: Vec<&str> = [GCC].iter().chain(flags).copied().collect();
        let program = compile(folder.path(), &command, "frames.c", FRAMES, "frames");
        let (rows, complex) = compare(&program);
        // While it goes through a large frame page by page, GCC counts from x12.
        assert!(rows > 20 && complex <= 1, "{flags:?}: {complex} of {rows}");
        let rows = our_rows(&program);
        let frames = rows.values().filter_map(|row| match row {
            SimpleRow::Aarch64(frame) => Some(frame),
            _ => None,
        });
        let is_signed = frames.clone().any(|frame| frame.is_signed);
        assert_eq!(is_signed, flags.iter().any(|flag| flag.contains("pac-ret")), "{flags:?}");
        assert!(frames.clone().any(|frame| frame.cfa > 600_000), "{flags:?}");
        assert!(frames.clone().any(|frame| frame.from_fp), "{flags:?}: alloca");
    }
}

#[test]
fn aarch64_frames_whose_size_the_processor_decides_are_too_complex() {
    if !has(GCC) {
        return;
    }
    let source = r#"
        #include <arm_sve.h>
        void seen(void *, void *);
        int main(void) { svint8_t x = svdup_s8(1); int y; seen(&x, &y); return y; }
        void seen(void *at, void *other) { *(int *)other = *(volatile char *)at; }
    "#;
    let folder = tempfile::tempdir().unwrap();
    let flags = [GCC, "-O1", "-fno-inline", "-march=armv8.2-a+sve"];
    let rows = our_rows(&compile(folder.path(), &flags, "sve.c", source, "sve"));
    assert!(rows.values().any(|row| *row == SimpleRow::TooComplex), "{rows:?}");
}

#[test]
fn aarch64_rows_of_the_c_library_and_others_are_the_tools() {
    if !has(GCC) {
        return;
    }
    let (mut all, mut complex) = (0, 0);
    for name in ["libc.so.6", "ld-linux-aarch64.so.1", "libm.so.6", "libgcc_s.so.1", "libgomp.so.1"] {
        let path = text(Command::new(GCC).arg(format!("-print-file-name={name}")));
        let path = PathBuf::from(path.trim_end());
        assert!(path.is_absolute(), "{GCC} has no {name}");
        let (rows, of_them) = compare(&path);
        (all, complex) = (all + rows, complex + of_them);
    }
    assert!(all > 20_000 && complex * 500 < all, "{complex} of {all}");
}

/// Calls itself through each kind of frame, and through a signal handler, and writes what a sample holds in the innermost.
const DEEP: &str = r#"
    #define _GNU_SOURCE
    #include <alloca.h>
    #include <signal.h>
    #include <stdint.h>
    #include <stdlib.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    #define FAR __attribute__((noinline,noclone))
    #define SIGNED FAR __attribute__((target("branch-protection=pac-ret")))
    extern void *__libc_stack_end;
    extern void restore(void);
    void dump(void *end);
    volatile uint64_t sink = 1;
    /* Has no frame: its return address is in x30. */
    __asm__(".text\n .type dump, %function\n dump: .cfi_startproc\n mov x3, x0\n adr x2, inside\n mov x4, sp\n"
        "sub sp, sp, 32\n .cfi_adjust_cfa_offset 32\n stp x2, x4, [sp]\n stp x29, x30, [sp, 16]\n"
        "mov x0, 1\n mov x1, sp\n mov x2, 32\n mov x8, 64\n svc 0\n add sp, sp, 32\n .cfi_adjust_cfa_offset -32\n"
        "inside: mov x0, 1\n mov x1, sp\n sub x2, x3, x1\n mov x8, 64\n svc 0\n mov x0, 0\n mov x8, 94\n svc 0\n"
        ".cfi_endproc\n .size dump, .-dump\n"
        /* As the vDSO's: without call frame information. */
        ".type restore, %function\n nop\n restore: mov x8, 139\n svc 0\n .size restore, .-restore\n"
        /* Interrupted while its return address is in x30. */
        ".type interrupted, %function\n interrupted: .cfi_startproc\n mov x8, 172\n svc 0\n mov x1, 10\n mov x8, 129\n"
        "svc 0\n ret\n .cfi_endproc\n .size interrupted, .-interrupted\n");
    int interrupted(void);
    FAR int small(void) { dump(__libc_stack_end); return sink; }
    SIGNED int signed_frame(void) { return small() + sink; }
    SIGNED int signed_large(void) { char bytes[600000]; bytes[sink] = 1; return signed_frame() + bytes[sink]; }
    void on_signal(int number) { sink += signed_large(); }
    FAR int sized(int x) { char *bytes = alloca(x * 100); bytes[sink] = 1; return interrupted() + bytes[sink]; }
    int compare(const void *a, const void *b) { sink += sized(7); return 0; }
    FAR int aligned(int x) { _Alignas(256) char bytes[512]; bytes[sink] = 1; qsort(bytes, 2, 4, compare); return bytes[x]; }
    SIGNED int outer(int x) { return aligned(x) + sink; }
    int main(int argc, char **argv) {
        struct { void *handler; unsigned long flags; void *restorer; unsigned long mask; } action =
            { on_signal, 0x04000000, restore, 0 };
        syscall(SYS_rt_sigaction, 10, &action, 0, 8);
        return outer(argc);
    }
"#;

/// What a walker goes by, on aarch64.
#[derive(Clone, Copy, Debug)]
struct Registers {
    pc: u64,
    sp: u64,
    fp: u64,
    /// `None` behind a call: what was in it is lost.
    lr: Option<u64>,
}

struct Stack {
    start: u64,
    bytes: Vec<u8>,
}

impl Stack {
    fn word(&self, at: u64) -> u64 {
        u64::from_le_bytes(*self.bytes[(at - self.start) as usize..].first_chunk().unwrap())
    }
}

/// The caller, as the row says. `None`: there is none.
fn step(row: SimpleRow, regs: Registers, stack: &Stack) -> Option<Registers> {
    let Registers { sp, fp, .. } = regs;
    let frame = match row {
        SimpleRow::First => return None,
        SimpleRow::SignalFrame => {
            let [fp, lr, sp, pc] = [544, 552, 560, 568].map(|at| stack.word(sp + at));
            return Some(Registers { pc, sp, fp, lr: Some(lr) });
        }
        SimpleRow::Aarch64(frame) => frame,
        row => panic!("{row:?} at {regs:x?}"),
    };
    let cfa = u64::from(frame.cfa) + if frame.from_fp { fp } else { sp };
    let word = |below: u32| {
        let at = cfa - u64::from(below);
        (at >= sp).then(|| stack.word(at))
    };
    let (fp, lr) = match frame.saved {
        Aarch64Saved::Nothing => (fp, regs.lr),
        Aarch64Saved::Fp(at) => (word(at).unwrap_or(fp), regs.lr),
        Aarch64Saved::ReturnAddress(at) => (fp, word(at).or(regs.lr)),
        Aarch64Saved::Both(at) => (word(at + 8).unwrap_or(fp), word(at).or(regs.lr)),
    };
    let return_address = lr.expect("the return address of a function that has called");
    let address = return_address & ((1 << 48) - 1);
    assert!(frame.is_signed || address == return_address, "{return_address:#x} is signed, {frame:?} is not");
    Some(Registers { pc: address, sp: cfa, fp, lr: None })
}

/// The functions of a program, by address.
fn functions(program: &Path) -> BTreeMap<u64, String> {
    let shown = text(Command::new("aarch64-linux-gnu-nm").arg(program));
    let symbols = shown.lines().filter_map(|line| {
        let [address, kind, name] = line.split(' ').collect::<Vec<_>>().try_into().ok()?;
        let is_code = "tTwW".contains(kind) && !name.starts_with('$') && name != "inside";
        is_code.then(|| (hex(address), name.to_owned()))
    });
    symbols.collect()
}

fn walk_deep(flags: &[&str]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let command: Vec<&str> = [GCC, "-static", "-no-pie"].iter().chain(flags).copied().collect();
    let program = compile(folder.path(), &command, "deep.c", DEEP, "deep");
    let written = output(Command::new("qemu-aarch64").arg(&program));
    let (registers, stack) = written.split_at(32);
    let at = |at: usize| u64::from_le_bytes(*registers[at..].first_chunk().unwrap());
    let mut regs = Registers { pc: at(0), sp: at(8), fp: at(16), lr: Some(at(24)) };
    let stack = Stack { start: regs.sp, bytes: stack.to_vec() };
    assert!(stack.bytes.len() > 600_000);
    let (rows, functions) = (our_rows(&program), functions(&program));
    let mut names = Vec::new();
    loop {
        let is_instruction = regs.lr.is_some();
        let row = row_at(&rows, if is_instruction { regs.pc } else { regs.pc - 1 });
        // Nothing has called the code that returns from a signal.
        let code = if is_instruction || row == SimpleRow::SignalFrame { regs.pc } else { regs.pc - 1 };
        names.push(functions.range(..=code).next_back().unwrap().1.clone());
        match step(row, regs, &stack) {
            Some(caller) => regs = caller,
            None => return names,
        }
    }
}

#[test]
fn an_aarch64_stack_is_whole_through_leaves_signed_and_large_frames_and_a_signal() {
    if !has(GCC) || !has("qemu-aarch64") {
        return;
    }
    for flags in [&["-O2"][..], &["-O2", "-fomit-frame-pointer"], &["-O0"], &["-O1", "-fno-shrink-wrap"]] {
        let names = walk_deep(flags);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let own = ["dump", "small", "signed_frame", "signed_large", "on_signal", "restore"];
        let interrupted = ["interrupted", "sized", "compare"];
        let begin = ["aligned", "outer", "main", "__libc_start_call_main", "__libc_start_main", "_start"];
        let qsort = names.len() - own.len() - interrupted.len() - begin.len();
        let (first, rest) = names.split_at(own.len());
        let (second, rest) = rest.split_at(interrupted.len());
        let (sorting, last) = rest.split_at(qsort);
        assert_eq!((first, second), (&own[..], &interrupted[..]), "{flags:?}: {names:?}");
        assert!(sorting.iter().all(|name| name.contains("sort")) && !sorting.is_empty(), "{sorting:?}");
        let last: Vec<&str> = last.iter().map(|name| name.trim_end_matches("_impl")).collect();
        assert_eq!(last, begin);
    }
}
