//! Input that lies: random registers and stacks, forged call frame information. The unwinder may end a stack wherever it
//! likes, but it does not panic, it ends, and it says why.

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use uhr_model::object::ElfFile;
use uhr_model::{Avma, CodeAddress, FileOffset, StackEnding};
use uhr_unwind::{
    MAX_FRAMES, MemoryError, ProcessUnwinder, Registers, StackCopy, TargetMemory, UnwindCache, UnwindModule,
};

use crate::target::compile;

/// Memory in which every byte can be read, and follows from its address.
struct Anything(u64);

impl TargetMemory for Anything {
    fn read(&self, address: Avma, buffer: &mut [u8]) -> Result<usize, MemoryError> {
        for (at, byte) in buffer.iter_mut().enumerate() {
            let place = address.0.wrapping_add(at as u64);
            let word = (place / 8).wrapping_add(self.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            // Many words point into the code or the stack, so that walks go on.
            let word = match word >> 61 {
                0..=2 => CODE + word % 0x4000,
                3..=5 => STACK + (word & 0xfff8),
                _ => word,
            };
            *byte = word.to_le_bytes()[(place % 8) as usize];
        }
        Ok(buffer.len())
    }
}

/// Functions of 512 bytes without call frame information, each behind a call, and each as slow to leave as can be; counts how
/// often its code is read.
struct SlowToLeave(std::cell::Cell<u64>);

impl TargetMemory for SlowToLeave {
    fn read(&self, address: Avma, buffer: &mut [u8]) -> Result<usize, MemoryError> {
        self.0.set(self.0.get() + 1);
        for (at, byte) in buffer.iter_mut().enumerate() {
            *byte = match address.0.wrapping_add(at as u64) % 512 {
                500 => 0xc3,
                507 => 0xe8,
                508..=511 => 0,
                _ => 0x90,
            };
        }
        Ok(buffer.len())
    }
}

#[test]
fn code_that_is_slow_to_leave_does_not_keep_the_unwinder_busy() {
    let mut unwinder = ProcessUnwinder::new();
    unwinder.map(Avma(CODE)..Avma(CODE + 0x100_0000), FileOffset(0), None);
    let (mut cache, memory) = (UnwindCache::new(), SlowToLeave(0.into()));
    let mut depths = Vec::new();
    for walk in 0..200_u64 {
        // Returns to functions that no stack before had.
        let words = (0..100).map(|frame| CODE + (1 + walk * 100 + frame) * 512);
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        let (regs, stack) = (Registers::new(CODE, STACK), StackCopy { start: Avma(STACK), bytes: &bytes });
        let mut out = Vec::new();
        unwinder.unwind(regs, stack, Some(&memory), &mut cache, &mut out);
        depths.push(out.len());
    }
    assert!(depths[0] > 50, "an honest stack of new functions: {depths:?}");
    // Two pieces a function for its exits, one for what stands before and behind.
    let reads = memory.0.get();
    assert!(reads < 200 * 50, "{reads} reads, depths {depths:?}");
}

const CODE: u64 = 0x40_0000;
const STACK: u64 = 0x7fff_0000_0000;

fn unwind_everywhere(module: Option<&Arc<UnwindModule>>, offset: u64, bytes: &[u8], seed: u64, ip: u64) {
    let mut unwinder = ProcessUnwinder::new();
    unwinder.map(Avma(CODE)..Avma(CODE + 0x10_0000), FileOffset(offset), module.cloned());
    unwinder.map(Avma(u64::MAX - 0xfff)..Avma(u64::MAX), FileOffset(0), module.cloned());
    let mut cache = UnwindCache::new();
    let memory = Anything(seed);
    for (sp, bp) in
        [(STACK, STACK + 16), (0, 0), (u64::MAX, u64::MAX - 7), (seed, seed.rotate_left(9)), (7, STACK)]
    {
        for code in [None, Some(&memory as &dyn TargetMemory)] {
            let mut out = vec![CodeAddress::Instruction(Avma(0))];
            let regs = Registers::new(ip, sp).with_bp(bp).with(10, seed).with(3, STACK);
            let stack = StackCopy { start: Avma(sp), bytes };
            let ending = unwinder.unwind(regs, stack, code, &mut cache, &mut out);
            assert!(out.len() >= 2 && out.len() <= MAX_FRAMES + 1);
            assert!(!ending.is_without_sample() && ending != StackEnding::Heuristic);
            assert_eq!(out[1], CodeAddress::Instruction(Avma(ip)));
        }
        let blocked = unwinder.unwind_blocked(Avma(ip), Avma(sp), &memory, &mut cache);
        assert!(blocked.proven <= blocked.frames.len() && blocked.frames.len() <= MAX_FRAMES);
    }
    let chain: Vec<u64> =
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
    let mut out = Vec::new();
    unwinder.frame_pointer_chain(&chain, 127, Some(&memory), &mut cache, &mut out);
}

fn program(link: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let source = r#"
        #include <stdio.h>
        #include <string.h>
        __attribute__((noinline)) int f(int n) { char b[n + 1]; memset(b, n, n + 1); return b[n / 2] + printf("%s", b); }
        int main(int c, char **v) { return f(c) + f(c + 1); }
    "#;
    std::fs::read(compile(Path::new(folder.path()), &["gcc", "-O2", link], "p.c", source, "p")).unwrap()
}

fn words() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        (0..0x10_0000u64).prop_map(|at| CODE + at),
        (0..0x800u64).prop_map(|at| STACK + at * 8),
        any::<u64>(),
        0..20u64,
    ];
    prop::collection::vec(word, 0..400)
        .prop_map(|words| words.iter().flat_map(|word| word.to_le_bytes()).collect())
}

#[test]
fn random_stacks_on_real_information() {
    let image = program("-static");
    let module = Arc::new(UnwindModule::from_image(&image).unwrap());
    let elf = ElfFile::parse(image.as_slice()).unwrap();
    let offset = elf.segments.iter().find(|segment| segment.executable).unwrap().offset.0;
    proptest!(ProptestConfig::with_cases(300), |(bytes in words(), seed: u64, ip in 0..0x10_0000u64, far: u64)| {
        unwind_everywhere(Some(&module), offset, &bytes, seed, CODE + ip);
        unwind_everywhere(None, offset, &bytes, seed, CODE + ip);
        unwind_everywhere(Some(&module), offset, &bytes, seed, far);
    });
}

/// A range of a file to damage: one section, or the ELF header.
fn forged(image: &[u8], section: &str, edits: &[(usize, u8)], cut: Option<usize>) -> Vec<u8> {
    let elf = ElfFile::parse(image).unwrap();
    let (offset, size) =
        elf.section(section).map_or((0, 64), |found| (found.offset.0 as usize, found.size as usize));
    let mut image = image.to_vec();
    for (at, byte) in edits {
        image[offset + at % size] = *byte;
    }
    if let Some(cut) = cut {
        image.truncate(offset + cut % size);
    }
    image
}

#[test]
fn forged_sections() {
    // The small one has the linker's index of entries, the large one has not.
    let images = [program("-static"), program("-no-pie")];
    let sections = prop::sample::select(vec![".eh_frame", ".eh_frame_hdr", "the header"]);
    let edit = (prop_oneof![0..64usize, 0..100_000usize], any::<u8>());
    let edits = prop::collection::vec(edit, 1..400);
    let cut = prop::option::weighted(0.1, 0..100_000usize);
    proptest!(ProptestConfig::with_cases(400), |(small: bool, section in sections, edits in edits, cut in cut, bytes in words(), seed: u64)| {
        let image = forged(&images[usize::from(small)], section, &edits, cut);
        let Ok(module) = UnwindModule::from_image(&image).map(Arc::new) else { return Ok(()) };
        module.frame_pointers();
        let mut rows = Vec::new();
        module.simple_rows(&mut |address, _| rows.push(address));
        assert!(rows.is_sorted_by(|one, next| one < next));
        for ip in 0..16 {
            unwind_everywhere(Some(&module), 0x1000, &bytes, seed, CODE + ip * if small { 37 } else { 0x3457 });
        }
    });
}

/// A module whose whole `.eh_frame` is chosen freely, reached through its entries' index.
#[test]
fn random_bytes_as_call_frame_information() {
    let image = program("-static");
    let elf = ElfFile::parse(image.as_slice()).unwrap();
    assert!(elf.section(".eh_frame_hdr").is_none(), "the section itself is to be walked");
    let section = elf.section(".eh_frame").unwrap();
    let offset = section.offset.0 as usize;
    let text = elf.section(".text").unwrap().address.0;
    let instructions = prop::collection::vec(
        prop_oneof![
            Just(vec![0x0f, 4, 0x77, 8, 0x06, 0x06]), // the frame is what rsp+8 points to, twice
            Just(vec![0x0f, 3, 0x2f, 0xfd, 0xff]),    // an expression that jumps to itself
            Just(vec![0x0e, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x7f]),
            Just(vec![0x12, 6, 0x80, 0x7f]),
            Just(vec![0x0a]),
            Just(vec![0x0b]),
            prop::collection::vec(any::<u8>(), 1..6),
        ],
        0..40,
    );
    proptest!(ProptestConfig::with_cases(400), |(instructions in instructions, bytes in words(), seed: u64, signal: bool)| {
        let mut image = image.clone();
        let mut forged = Vec::new();
        let cie: Vec<u8> = [&[0, 0, 0, 0, 1][..], if signal { b"zRS\0" } else { b"zR\0" }, &[1, 0x78, 16, 1, 0x00, 0x0c, 7, 8, 0x90, 1]].concat();
        forged.extend((cie.len() as u32).to_le_bytes());
        forged.extend(&cie);
        let body: Vec<u8> = instructions.concat();
        let length = 4 + 16 + 1 + body.len();
        forged.extend((length as u32).to_le_bytes());
        forged.extend((forged.len() as u32).to_le_bytes());
        forged.extend(text.to_le_bytes());
        forged.extend(0x10_0000u64.to_le_bytes());
        forged.push(0);
        forged.extend(&body);
        forged.extend([0; 4]);
        image[offset..offset + forged.len()].copy_from_slice(&forged);
        let module = Arc::new(UnwindModule::from_image(&image).unwrap());
        module.frame_pointers();
        for ip in 0..8 {
            unwind_everywhere(Some(&module), 0x1000, &bytes, seed, CODE + ip * 0x8457);
        }
    });
}
