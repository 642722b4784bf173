//! Damaged and forged input of every kind: names may be lost, the process is not.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test's own helpers may fail the test")]

mod programs;

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use uhr_model::RelativeAddress;
use uhr_symbolize::{
    Jitdump, KernelSymbols, ModuleSource, PerfMap, demangle, machine_code, symbolize, symbolize_with_lines,
};

/// A small program with symbols, DWARF, notes and unwind entries.
static PROGRAM: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let source = "struct S { int f(int x) { return x * 3; } };
        __attribute__((noinline)) int g(int x) { return S().f(x) + 1; }
        int main(int argc, char **) { return g(argc); }";
    std::fs::read(programs::compile(folder.path(), "a.cpp", source, &["-O1", "-g"])).unwrap()
});

/// Panics that were caught on the way: in the code of others that must not happen either.
static PANICS: LazyLock<Arc<AtomicUsize>> = LazyLock::new(|| {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        counted.fetch_add(1, Ordering::Relaxed);
        report(panic);
    }));
    count
});

fn survives(bytes: &[u8]) {
    let panics = PANICS.load(Ordering::Relaxed);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("forged");
    std::fs::write(&path, bytes).unwrap();
    let addresses: Vec<_> =
        (0..0x5000).step_by(0x41).chain([u64::MAX, 1 << 63]).map(RelativeAddress).collect();
    let source = ModuleSource::Elf(programs::elf(&path));
    let wants_lines = |range: Range<RelativeAddress>| range.end.0.wrapping_sub(range.start.0) < 1 << 18;
    let answer = symbolize_with_lines(&source, &addresses, &wants_lines);
    assert_eq!(answer.results.len(), addresses.len());
    let ranges: Vec<_> = addresses.iter().map(|&at| at..RelativeAddress(at.0.wrapping_add(0x300))).collect();
    assert_eq!(machine_code(&source, &ranges).len(), ranges.len());
    assert_eq!(machine_code(&ModuleSource::Vdso { image: bytes }, &ranges).len(), ranges.len());
    let answer = symbolize(&ModuleSource::Vdso { image: bytes }, &addresses);
    assert_eq!(answer.results.len(), addresses.len());
    assert_eq!(PANICS.load(Ordering::Relaxed), panics);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_as_elf(mut bytes in proptest::collection::vec(any::<u8>(), 0..4096)) {
        survives(&bytes);
        if let Some(start) = bytes.first_chunk_mut::<6>() {
            *start = *b"\x7fELF\x02\x01";
        }
        survives(&bytes);
    }

    #[test]
    fn cut_elf(share in 0.0..1.0f64) {
        survives(&PROGRAM[..(PROGRAM.len() as f64 * share) as usize]);
    }

    #[test]
    fn forged_elf(changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..64)) {
        let mut bytes = PROGRAM.clone();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        survives(&bytes);
    }

    /// Whole fields, where headers are: sizes and offsets of all ones and zeros.
    #[test]
    fn forged_fields(at in any::<proptest::sample::Index>(), ones in any::<bool>(), behind in any::<bool>()) {
        let mut bytes = PROGRAM.clone();
        // The section table is at the end of the file, the program headers at its start.
        let table = if behind { bytes.len() - 36 * 64 } else { 0 };
        let at = table + (at.index(36 * 64 - 8) & !3);
        bytes[at..at + 8].fill(if ones { 0xff } else { 0 });
        survives(&bytes);
    }

    #[test]
    fn perf_maps(text in proptest::collection::vec(prop_oneof![
        Just(b"1000 10 x\n".to_vec()),
        Just(b"ffffffffffffffff ff y\n".to_vec()),
        Just(b"JS:*".to_vec()),
        Just(b"1008 ff py::\n".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..20),
        "[0-9a-f]{1,18} [0-9a-f]{1,18} (JS:|py::|Eval:)?[ :/*a-z0-9]*\n".prop_map(String::into_bytes),
    ], 0..50), addresses in proptest::collection::vec(any::<u64>(), 0..20)) {
        let text = text.concat();
        let map = PerfMap::parse(&text);
        let addresses: Vec<_> =
            addresses.into_iter().chain(0xff0..0x1020).map(RelativeAddress).collect();
        symbolize(&ModuleSource::PerfMap(&map), &addresses);
    }

    #[test]
    fn jitdumps(mut bytes in proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(16), Just(48), any::<u8>()], 0..512)) {
        let header = [0x44, 0x54, 0x69, 0x4a, 1, 0, 0, 0, 40, 0, 0, 0];
        for (to, from) in bytes.iter_mut().zip(header) {
            *to = from;
        }
        if let Ok(dump) = Jitdump::parse(&bytes) {
            let ends = [RelativeAddress(0), RelativeAddress(u64::MAX)];
            symbolize_with_lines(&ModuleSource::Jitdump(&dump), &ends, &|_| true);
        }
    }

    #[test]
    fn kallsyms(text in "([0-9a-f]{0,17} [tTwWdA] [a-z_$\\[\\]]*(\t\\[[a-z]*\\]?)?\n|[ -~ä]{0,20}\n){0,40}") {
        let kernel = KernelSymbols::parse(&text);
        symbolize(&ModuleSource::Kernel(&kernel), &[RelativeAddress(0), RelativeAddress(u64::MAX)]);
    }

    #[test]
    fn names(name in "(_Z|_ZN|_R|___Z)?[A-Z0-9a-z_.$ä]{0,80}(17h[0-9a-f]{16}E)?") {
        let panics = PANICS.load(Ordering::Relaxed);
        prop_assert!(demangle(&name).len() <= 64 * 1024);
        prop_assert_eq!(PANICS.load(Ordering::Relaxed), panics);
    }
}
