//! `docs/format.md` says what the writer writes. `UHR_BLESS=1 cargo test -p uhr-recording` writes its tables anew.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fmt::Write as _;

use uhr_model::{FrameMode, Interrupt, ModuleKind, NoCode, Region, StackEnding, Unsymbolized, WaitKind};
use uhr_recording::Table;
use uhr_recording::tables::{
    CodeLines, Faults, Frames, Locations, MachineCode, MappingNames, Mappings, Modules, OffCpu, Processes,
    Resident, Samples, SourceLines, Stacks, SyscallWindows, Syscalls, Threads, Wakers,
};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/format.md");
const BEGIN: &str = "<!-- begin: written by crates/uhr-recording/tests/format_doc.rs -->\n";
const END: &str = "<!-- end -->\n";

fn table<T: Table>(page: &mut String) {
    write!(page, "\n### {}\n\n{}\n\n| column | type | what it says |\n|---|---|---|\n", T::NAME, T::about())
        .unwrap();
    for column in T::docs() {
        writeln!(page, "| `{}` | {} | {} |", column.name, column.kind, column.text).unwrap();
    }
}

fn codes<C: Copy>(page: &mut String, set: &str, all: &[C], code: fn(C) -> u8, name: fn(C) -> &'static str) {
    let words: Vec<String> = all.iter().map(|&one| format!("{} {}", code(one), name(one))).collect();
    writeln!(page, "| `{set}` | {} |", words.join(", ")).unwrap();
}

/// All tables, and the words that their one-byte codes stand for.
fn schema() -> String {
    let mut page = String::new();
    table::<Samples>(&mut page);
    table::<OffCpu>(&mut page);
    table::<Wakers>(&mut page);
    table::<Faults>(&mut page);
    table::<MappingNames>(&mut page);
    table::<Resident>(&mut page);
    table::<Syscalls>(&mut page);
    table::<SyscallWindows>(&mut page);
    table::<Stacks>(&mut page);
    table::<Frames>(&mut page);
    table::<Locations>(&mut page);
    table::<MachineCode>(&mut page);
    table::<CodeLines>(&mut page);
    table::<SourceLines>(&mut page);
    table::<Modules>(&mut page);
    table::<Mappings>(&mut page);
    table::<Processes>(&mut page);
    table::<Threads>(&mut page);
    page.push_str("\n### Codes\n\n| set | values |\n|---|---|\n");
    codes(&mut page, "StackEnding", StackEnding::ALL, StackEnding::code, StackEnding::name);
    codes(&mut page, "FrameMode", FrameMode::ALL, FrameMode::code, FrameMode::name);
    codes(&mut page, "ModuleKind", ModuleKind::ALL, ModuleKind::code, ModuleKind::name);
    codes(&mut page, "WaitKind", WaitKind::ALL, WaitKind::code, WaitKind::name);
    codes(&mut page, "Interrupt", Interrupt::ALL, Interrupt::code, Interrupt::name);
    codes(&mut page, "Region", Region::ALL, Region::code, Region::name);
    codes(&mut page, "Unsymbolized", Unsymbolized::ALL, Unsymbolized::code, Unsymbolized::name);
    codes(&mut page, "NoCode", NoCode::ALL, NoCode::code, NoCode::name);
    page.push('\n');
    page
}

#[test]
fn docs_format_md_says_what_the_writer_writes() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("docs/format.md has lost its marker");
    let (written, after) = rest.split_once(END).expect("docs/format.md has lost its second marker");
    let expected = schema();
    if std::env::var_os("UHR_BLESS").is_some() {
        return std::fs::write(PAGE, format!("{before}{BEGIN}{expected}{END}{after}")).unwrap();
    }
    assert!(
        written == expected,
        "docs/format.md is stale: write it anew with UHR_BLESS=1 cargo test -p uhr-recording --test format_doc"
    );
}
