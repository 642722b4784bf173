//! Separate debug files: found in every place where they may lie, and refused if they belong to another build.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test's own helpers may fail the test")]

mod programs;

use std::fs;
use std::path::{Path, PathBuf};

use programs::{address_of, compile, elf, image_base, look_up, name, run};
use uhr_model::object::ElfFile;
use uhr_model::{BuildId, RelativeAddress, Unsymbolized};
use uhr_symbolize::{
    ElfSource, FoundBy, Location, Mismatch, ModuleSource, ModuleSymbols, Note, Origin, symbolize,
};

/// `hidden` is on line 2, and local: only the debug file knows it.
const PROGRAM: &str = "volatile int sink;
__attribute__((noinline)) static int hidden(int x) { sink = x; return x + VERSION; }
int main(int argc, char **argv) { return hidden(argc); }
";

/// A program split in two, as distributions do, inside a folder that plays the root of a file system.
struct Split {
    root: tempfile::TempDir,
    program: PathBuf,
    debug: PathBuf,
    base: u64,
    hidden: u64,
}

impl Split {
    fn new(version: u32, link_name: &str, flags: &[&str]) -> Self {
        let root = tempfile::tempdir().unwrap();
        let bin = root.path().join("opt/app");
        fs::create_dir_all(&bin).unwrap();
        let define = format!("-DVERSION={version}");
        let mut all = vec!["-O1", "-g", &define];
        all.extend(flags);
        let program = compile(&bin, "a.c", PROGRAM, &all);
        let (base, hidden) = (image_base(&program), address_of(&program, "hidden"));
        let debug = root.path().join(link_name);
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        run("objcopy", &["--only-keep-debug", &text(&program), &text(&debug)]);
        let link = format!("--add-gnu-debuglink={}", text(&debug));
        run("objcopy", &["--strip-all", &link, &text(&program)]);
        Self { root, program, debug, base, hidden }
    }

    fn place_debug(&self, place: &str) -> PathBuf {
        let place = self.root.path().join(place);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::copy(&self.debug, &place).unwrap();
        place
    }

    fn look_up(&self) -> ModuleSymbols {
        let path = Path::new("/opt/app/a.c.out");
        let source = ElfSource {
            open: &self.program,
            path,
            build_id: None,
            root: Some(self.root.path()),
            elsewhere: None,
        };
        look_up(source, self.base, &[self.hidden])
    }

    fn build_id(&self) -> BuildId {
        ElfFile::parse(fs::read(&self.program).unwrap().as_slice()).unwrap().build_id.unwrap()
    }
}

fn build_id_place(id: &BuildId) -> String {
    let id = id.to_string();
    format!("usr/lib/debug/.build-id/{}/{}.debug", &id[..2], &id[2..])
}

fn assert_hidden_at_line_2(answer: &ModuleSymbols) {
    let Location { function, file, line } = &answer.results[0].as_ref().unwrap().locations[0];
    assert_eq!((function.as_deref(), *line), (Some("hidden"), Some(2)));
    assert!(file.as_deref().unwrap().ends_with("/opt/app/a.c"));
}

#[test]
fn by_debug_link_with_names_of_every_length() {
    for length in 1..=9 {
        let link_name = "d".repeat(length);
        let split = Split::new(1, &link_name, &["-Wl,--build-id=none"]);
        assert_eq!(name(&split.look_up().results[0]), "no-symbol");
        for folder in ["opt/app", "opt/app/.debug", "usr/lib/debug/opt/app"] {
            let path = split.place_debug(&format!("{folder}/{link_name}"));
            let answer = split.look_up();
            assert_hidden_at_line_2(&answer);
            assert_eq!(answer.origin, Origin::DebugFile { path: path.clone(), found_by: FoundBy::DebugLink });
            fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn by_build_id() {
    let split = Split::new(1, "a.debug", &["-Wl,--build-id"]);
    let path = split.place_debug(&build_id_place(&split.build_id()));
    let answer = split.look_up();
    assert_hidden_at_line_2(&answer);
    assert_eq!(answer.origin, Origin::DebugFile { path, found_by: FoundBy::BuildId });
    assert_eq!(answer.notes, []);
}

/// The program is gone, replaced, or on another machine: its debug file has the same segments and all names.
#[test]
fn a_program_that_is_gone_is_named_by_its_debug_file() {
    let split = Split::new(1, "a.debug", &["-Wl,--build-id"]);
    let other = Split::new(2, "a.debug", &["-Wl,--build-id"]);
    let id = split.build_id();
    let look = |open: &Path| {
        let path = Path::new("/opt/app/a.c.out");
        let root = Some(split.root.path());
        let source = ElfSource { open, path, build_id: Some(&id), root, elsewhere: None };
        look_up(source, split.base, &[split.hidden])
    };
    let gone = split.root.path().join("gone");
    assert_eq!(name(&look(&gone).results[0]), "file-missing");
    let debug_file = split.place_debug(&build_id_place(&id));
    for open in [&gone, &other.program] {
        let answer = look(open);
        assert_hidden_at_line_2(&answer);
        assert_eq!(answer.origin, Origin::DebugFile { path: debug_file.clone(), found_by: FoundBy::BuildId });
        assert_eq!(answer.notes, []);
    }
    fs::copy(&other.debug, &debug_file).unwrap();
    assert_eq!(name(&look(&gone).results[0]), "file-missing");
    assert_eq!(name(&look(&other.program).results[0]), "file-changed");
}

#[test]
fn another_builds_debug_file_is_refused() {
    let split = Split::new(1, "a.debug", &["-Wl,--build-id"]);
    let other = Split::new(2, "a.debug", &["-Wl,--build-id"]);
    let by_id = split.root.path().join(build_id_place(&split.build_id()));
    fs::create_dir_all(by_id.parent().unwrap()).unwrap();
    fs::copy(&other.debug, &by_id).unwrap();
    let by_link = split.root.path().join("opt/app/a.debug");
    fs::copy(&other.debug, &by_link).unwrap();
    let answer = split.look_up();
    assert_eq!(answer.results[0].as_ref().unwrap_err().reason, Unsymbolized::NoSymbol);
    let notes = [
        Note::DebugFileRefused { path: by_id.clone(), because: Mismatch::BuildId },
        Note::DebugFileRefused { path: by_link, because: Mismatch::Checksum },
    ];
    assert_eq!(answer.notes, notes);
    assert!(answer.notes[0].to_string().contains(by_id.to_str().unwrap()));

    // The right file further down the list is still found.
    split.place_debug("opt/app/.debug/a.debug");
    let answer = split.look_up();
    assert_hidden_at_line_2(&answer);
    assert_eq!(answer.notes, notes);
}

#[test]
fn a_debug_link_cannot_leave_its_folders() {
    let mut split = Split::new(1, "a.debug", &["-Wl,--build-id=none"]);
    let outside = split.place_debug("opt/b/xxxxx");
    let bytes = fs::read(&split.program).unwrap();
    let at = bytes.windows(8).position(|window| window == b"a.debug\0").unwrap();
    let mut forged = bytes;
    forged[at..at + 7].copy_from_slice(b"../b/xx");
    split.program = split.root.path().join("opt/app/forged");
    fs::write(&split.program, forged).unwrap();
    fs::rename(&outside, outside.with_file_name("xx")).unwrap();
    assert_eq!(name(&split.look_up().results[0]), "no-symbol");
}

#[test]
fn the_file_that_ran_or_none() {
    let first = Split::new(1, "a.debug", &["-Wl,--build-id"]);
    let second = Split::new(2, "a.debug", &["-Wl,--build-id"]);
    let (id, other) = (first.build_id(), second.build_id());
    let asked = [RelativeAddress(first.hidden - first.base)];
    let look = |build_id| {
        let source = ElfSource { build_id: Some(build_id), ..elf(&first.program) };
        symbolize(&ModuleSource::Elf(source), &asked)
    };
    assert_eq!(name(&look(&id).results[0]), "no-symbol");
    let changed = look(&other);
    assert_eq!(name(&changed.results[0]), "file-changed");
    assert_eq!(changed.notes, [Note::FileChanged { path: first.program.clone() }]);

    let folder = first.root.path();
    for missing in [folder.join("nothing"), folder.to_owned()] {
        assert_eq!(name(&look_up(elf(&missing), 0, &[1]).results[0]), "file-missing");
    }
    let text = folder.join("text");
    fs::write(&text, "#!/bin/sh\n").unwrap();
    assert_eq!(name(&look_up(elf(&text), 0, &[1]).results[0]), "malformed");
}

#[test]
fn an_open_file_that_was_deleted() {
    use std::os::fd::AsRawFd;

    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "a.c", PROGRAM, &["-O1", "-g", "-DVERSION=1"]);
    let (base, hidden) = (image_base(&program), address_of(&program, "hidden"));
    let held = fs::File::open(&program).unwrap();
    fs::remove_file(&program).unwrap();
    let open = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
    let source = ElfSource { open: &open, path: &program, build_id: None, root: None, elsewhere: None };
    assert_eq!(name(&look_up(source, base, &[hidden]).results[0]), "hidden");
}

#[test]
fn a_file_that_was_cut_short_while_it_ran() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "a.c", PROGRAM, &["-O1", "-g", "-DVERSION=1"]);
    let (base, hidden) = (image_base(&program), address_of(&program, "hidden"));
    let source = ElfSource { open: &program, path: &program, build_id: None, root: None, elsewhere: None };
    let notes = |source| look_up(source, base, &[hidden]).notes;
    let is_cut = Note::FileCut { path: program.clone() };
    assert!(!notes(source).contains(&is_cut));
    let length = fs::metadata(&program).unwrap().len();
    fs::File::options().write(true).open(&program).unwrap().set_len(length / 2).unwrap();
    let source = ElfSource { open: &program, path: &program, build_id: None, root: None, elsewhere: None };
    assert!(notes(source).contains(&is_cut));
}

/// As dwz leaves a file: the function's name is in `.debug_str` of a file that several share (DW_FORM_GNU_strp_alt).
const DWZ: &str = r#"
        .globl main
        .type main, @function
main:   xor %eax, %eax
        ret
.Lend:  .size main, . - main
        .section .debug_abbrev, "", @progbits
        .uleb128 1, 0x11
        .byte 1
        .uleb128 0x11, 1, 0x12, 7, 0, 0
        .uleb128 2, 0x2e
        .byte 0
        .uleb128 3, 0x1f21, 0x11, 1, 0x12, 7, 0, 0, 0
        .section .debug_info, "", @progbits
        .long .Lstop - .Lstart
.Lstart: .value 4
        .long 0
        .byte 8
        .uleb128 1
        .quad main, .Lend - main
        .uleb128 2
        .long 4
        .quad main, .Lend - main
        .byte 0
.Lstop: .section .note.GNU-stack, "", @progbits
"#;

#[test]
fn names_shared_by_dwz() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "dwz.s", DWZ, &["-no-pie"]);
    let shared = "
        .section .debug_abbrev, \"\", @progbits
        .uleb128 1, 0x3c
        .byte 0, 0, 0, 0
        .section .debug_info, \"\", @progbits
        .long 8
        .value 4
        .long 0
        .byte 8, 1
        .section .debug_str, \"\", @progbits
        .asciz \"pad\"
        .asciz \"name_in_shared_file\"
        .section .note.GNU-stack, \"\", @progbits
    ";
    let flags = ["-shared", "-nostdlib", "-Wl,--build-id"];
    let alternate = compile(folder.path(), "shared.s", shared, &flags);
    let id = ElfFile::parse(fs::read(&alternate).unwrap().as_slice()).unwrap().build_id.unwrap();
    let link = folder.path().join("link");
    fs::write(&link, [b"shared.s.out\0", id.as_bytes()].concat()).unwrap();
    let section = format!(".gnu_debugaltlink={}", link.to_str().unwrap());
    run("objcopy", &["--add-section", &section, program.to_str().unwrap()]);

    let (base, main) = (image_base(&program), address_of(&program, "main"));
    let answer = look_up(elf(&program), base, &[main]);
    assert_eq!((name(&answer.results[0]), &answer.notes[..]), ("name_in_shared_file", &[][..]));
    fs::remove_file(alternate).unwrap();
    let answer = look_up(elf(&program), base, &[main]);
    assert_eq!(name(&answer.results[0]), "main");
    assert_eq!(answer.notes, [Note::AlternateMissing { path: "shared.s.out".into() }]);
}

/// Debian's libc, whose debug file the package libc6-dbg installs. Every exported function is looked up.
#[test]
fn the_c_library() {
    let libc = Path::new("/lib/x86_64-linux-gnu/libc.so.6");
    let Ok(bytes) = fs::read(libc) else {
        eprintln!("SKIPPED the_c_library: no {}", libc.display());
        return;
    };
    let id = ElfFile::parse(bytes.as_slice()).unwrap().build_id.unwrap();
    if !Path::new("/").join(build_id_place(&id)).exists() {
        eprintln!("SKIPPED the_c_library: libc6-dbg is not installed");
        return;
    }
    let exported = run("nm", &["-D", "-S", "--defined-only", libc.to_str().unwrap()]);
    let mut wanted = Vec::new();
    for line in exported.lines() {
        if let [start, _, "T" | "W", function] = line.split_whitespace().collect::<Vec<_>>()[..] {
            wanted.push((programs::hex(start), function.split('@').next().unwrap().to_owned()));
        }
    }
    assert!(wanted.len() > 2000);
    let stated: Vec<u64> = wanted.iter().map(|wanted| wanted.0).collect();
    let answer = look_up(elf(libc), image_base(libc), &stated);
    assert!(matches!(answer.origin, Origin::DebugFile { found_by: FoundBy::BuildId, .. }));
    let found: Vec<_> = answer.results.iter().map(|result| result.as_ref().unwrap()).collect();
    let with_lines = found.iter().filter(|found| found.locations[0].line.is_some()).count();
    assert!(with_lines * 100 > found.len() * 98, "{with_lines} of {}", found.len());
    for (found, (start, _)) in found.iter().zip(&wanted) {
        assert_eq!(found.start.0, *start);
    }
    let of = |function: &str| {
        let row = wanted.iter().position(|wanted| wanted.1 == function).unwrap();
        found[row].locations.last().unwrap()
    };
    let qsort = of("qsort");
    assert_eq!(qsort.function.as_deref(), Some("qsort"));
    assert!(
        qsort.file.as_deref().unwrap().ends_with("stdlib/msort.c")
            || qsort.file.as_deref().unwrap().ends_with("stdlib/qsort.c")
    );
    assert_eq!(of("argz_next").function.as_deref(), Some("__argz_next"));
    assert_eq!(of("getenv").function.as_deref(), Some("getenv"));
}
