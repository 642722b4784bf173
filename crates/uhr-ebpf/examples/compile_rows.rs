//! Compiles the unwind rows of files as for the kernel, one JSON object a line: rows, bytes that they take there, and time.
//!
//! ```text
//! cargo run --release -p uhr-ebpf --example compile_rows -- FILE...
//! ```
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a tool of the benchmark, not of users")]

use std::fs::File;
use std::sync::Arc;
use std::time::Instant;

use object::ReadCache;
use uhr_ebpf::PackedRows;
use uhr_model::object::ElfFile;
use uhr_unwind::UnwindModule;

fn main() {
    for path in std::env::args().skip(1) {
        let file = File::open(&path).unwrap();
        let begin = Instant::now();
        let elf = ElfFile::parse(&ReadCache::new(&file)).unwrap();
        let module = UnwindModule::of_file(Arc::new(file), &elf);
        let mut count = 0_u64;
        let rows = PackedRows::new(|each| {
            module.simple_rows(&mut |address, row| {
                count += 1;
                each(address, row);
            });
        });
        let ns = begin.elapsed().as_nanos();
        println!(
            r#"{{"file": "{path}", "rows": {count}, "bytes": {}, "section_bytes": {}, "ns": {ns}}}"#,
            rows.bytes(),
            module.section_bytes()
        );
    }
}
