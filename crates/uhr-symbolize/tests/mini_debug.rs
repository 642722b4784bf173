//! `.gnu_debugdata`, made as gdb's manual describes it.

#![allow(clippy::unwrap_used, reason = "a test's own helpers may fail the test")]

mod programs;

use std::path::{Path, PathBuf};

use programs::{address_of, compile, elf, image_base, look_up, name, run};
use proptest::prelude::*;
use uhr_symbolize::{Note, Origin};

const PROGRAM: &str = "volatile int sink;
__attribute__((noinline)) static int hidden(int x) { sink = x; return x + 1; }
int main(int argc, char **argv) { return hidden(argc); }
";

struct Packed {
    _folder: tempfile::TempDir,
    program: PathBuf,
    /// The packed file.
    packed: Vec<u8>,
    base: u64,
    hidden: u64,
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Puts `packed` in the place of what `program` has.
fn embed(program: &Path, packed: &[u8]) {
    let file = program.with_extension("packed");
    std::fs::write(&file, packed).unwrap();
    run("objcopy", &["--remove-section=.gnu_debugdata", text(program)]);
    run("objcopy", &[&format!("--add-section=.gnu_debugdata={}", text(&file)), text(program)]);
}

fn packed_program() -> Packed {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "a.c", PROGRAM, &["-O1"]);
    let (base, hidden) = (image_base(&program), address_of(&program, "hidden"));
    let symbols = folder.path().join("symbols");
    run("objcopy", &["--only-keep-debug", text(&program), text(&symbols)]);
    run(
        "objcopy",
        &[
            "-S",
            "--remove-section=.gdb_index",
            "--remove-section=.comment",
            "--keep-symbol=hidden",
            text(&symbols),
        ],
    );
    run("strip", &["--strip-all", text(&program)]);
    assert_eq!(name(&look_up(elf(&program), base, &[hidden]).results[0]), "no-symbol");
    run("xz", &[text(&symbols)]);
    let packed = std::fs::read(symbols.with_extension("xz")).unwrap();
    embed(&program, &packed);
    Packed { _folder: folder, program, packed, base, hidden }
}

impl Packed {
    fn look_up(&self) -> (String, Origin, Vec<Note>) {
        let answer = look_up(elf(&self.program), self.base, &[self.hidden]);
        (name(&answer.results[0]).to_owned(), answer.origin, answer.notes)
    }
}

#[test]
fn packed_symbols_name_a_stripped_program() {
    assert_eq!(packed_program().look_up(), ("hidden".to_owned(), Origin::MiniDebug, vec![]));
}

/// 300 MiB of zeros take 45 KB.
#[test]
fn a_packed_file_without_end_is_refused() {
    let program = packed_program();
    run("sh", &["-c", &format!("head -c 314572800 /dev/zero | xz -1 > {0}.bomb", text(&program.program))]);
    embed(&program.program, &std::fs::read(format!("{}.bomb", text(&program.program))).unwrap());
    let damaged = Note::MiniDebugDamaged { path: program.program.clone() };
    assert!(damaged.to_string().contains("damaged"));
    assert_eq!(program.look_up(), ("no-symbol".to_owned(), Origin::SymbolTable, vec![damaged]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn forged_packed_files(
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..8),
        share in 0.2..1.0f64,
    ) {
        thread_local! { static PROGRAM: Packed = packed_program(); }
        PROGRAM.with(|program| {
            let mut packed = program.packed.clone();
            for (at, value) in changes {
                let at = at.index(packed.len());
                packed[at] = value;
            }
            embed(&program.program, &packed);
            let (name, ..) = program.look_up();
            assert!(["hidden", "no-symbol"].contains(&name.as_str()), "{name}");
            packed.truncate((packed.len() as f64 * share) as usize);
            embed(&program.program, &packed);
            program.look_up();
        });
    }
}
