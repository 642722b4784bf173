//! A real program, step by step: compiled here, run one instruction at a time from the loader's first, and walked from where
//! it stands. The truth is kept beside it: a stack of the addresses that its calls have pushed and its returns have not taken
//! yet. No unwind information has a part in that.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use uhr_model::object::ElfFile;
use uhr_model::{Avma, FileOffset};
use uhr_unwind::{ProcessUnwinder, UnwindModule};

use super::machine::{From, How, Machine};
use super::stepped::Stepped;
use crate::PackedRows;
use crate::tables::{TableId, WalkBy};

const SOURCE: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static volatile int sum;
static int compare(const void *a, const void *b) { return sum += 1, *(const int *)a - *(const int *)b; }
static void handler(int number) { sum += number; }

/* A frame of a size that is known when it runs, one that is aligned, and one of the simplest kind. */
__attribute__((noinline)) static int any_size(int size) {
    char *room = __builtin_alloca(size);
    memset(room, size, size);
    return room[size / 2] + atoi("12");
}
__attribute__((noinline)) static int aligned(int value) {
    _Alignas(64) volatile char room[128];
    memset((char *)room, value, sizeof room);
    return any_size(value + room[3]);
}
__attribute__((noinline)) static int deep(int depth) { return depth ? deep(depth - 1) + 1 : aligned(40); }

int main(void) {
    int numbers[] = {5, 3, 9, 1, 7, 2};
    char text[64];
    qsort(numbers, 6, sizeof *numbers, compare);
    signal(SIGUSR1, handler);
    raise(SIGUSR1);
    sum += deep(30);
    snprintf(text, sizeof text, "%d %.3f %s", sum, 2.5, "x");
    sum += strlen(text);
    return sum == 0;
}
"#;

/// Files that the program has mapped, in the walker.
#[derive(Default)]
struct Files {
    modules: HashMap<PathBuf, Arc<UnwindModule>>,
    tables: HashMap<u32, TableId>,
}

impl Files {
    fn module(&mut self, path: &str, image: impl FnOnce() -> Vec<u8>) -> Option<Arc<UnwindModule>> {
        if let Some(known) = self.modules.get(Path::new(path)) {
            return Some(Arc::clone(known));
        }
        let module = match path {
            "[vdso]" => UnwindModule::from_image(&image()).unwrap(),
            _ => {
                let bytes = std::fs::read(path).ok()?;
                UnwindModule::read(&File::open(path).unwrap(), &ElfFile::parse(bytes.as_slice()).unwrap())
            }
        };
        Some(Arc::clone(self.modules.entry(path.into()).or_insert(Arc::new(module))))
    }

    /// Tells the walker of all code, as the recorder does.
    fn map(&mut self, stepped: &Stepped, machine: &mut Machine) {
        let mut unwinder = ProcessUnwinder::new();
        for (range, offset, path) in &stepped.code {
            let image = || {
                let mut image = vec![0; (range.end - range.start) as usize];
                stepped.memory.read_exact_at(&mut image, range.start).unwrap();
                image
            };
            unwinder.map(Avma(range.start)..Avma(range.end), FileOffset(*offset), self.module(path, image));
        }
        machine.forget_code();
        for code in unwinder.code() {
            let by = match code.module {
                None => WalkBy::ReadingCode,
                Some(module) => WalkBy::Rows(
                    *self
                        .tables
                        .entry(module.id())
                        .or_insert_with(|| machine.table(&PackedRows::new(|each| module.simple_rows(each)))),
                ),
            };
            machine.map(code.range.start.0..code.range.end.0, by).bias = code.bias;
        }
        machine.put_space();
    }
}

/// Runs the program of these words for the compiler to its end. Gives how the walks ended, where the loader had no part.
fn walk_every_instruction(flags: &[&str]) -> BTreeMap<&'static str, u32> {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("program.c");
    std::fs::write(&source, SOURCE).unwrap();
    let program = folder.path().join("program");
    let done = Command::new("cc").args(flags).arg(&source).arg("-o").arg(&program).status().unwrap();
    assert!(done.success());
    let mut stepped = Stepped::start(&program);
    let mut machine = Machine::new();
    let mut files = Files::default();
    let mut endings = BTreeMap::new();
    for number in 0.. {
        // All of the program's own code and of what it calls; of the loader, which is most of it, one in 16.
        let is_of_program = stepped.is_in(program.to_str().unwrap());
        if is_of_program || number % 16 == 0 {
            if std::mem::take(&mut stepped.has_changed) {
                files.map(&stepped, &mut machine);
            }
            let ending = walk(&stepped, &mut machine);
            // Its trampoline for functions that are not bound yet finds its frame by rbx.
            let is_of_loader = stepped.is_in("/ld-");
            *endings.entry(ending).or_insert(0) += u32::from(!is_of_loader);
        }
        if stepped.step().is_none() {
            break;
        }
    }
    assert!(stepped.has_ended);
    endings
}

/// Walks from where the program stands. A walk that comes to the first function has found all calls, and nothing else.
fn walk(stepped: &Stepped, machine: &mut Machine) -> &'static str {
    let registers = &stepped.registers;
    let start = registers.rsp & !4095;
    let mut stack = vec![0; (stepped.stack_end - start) as usize];
    stepped.memory.read_exact_at(&mut stack, start).unwrap();
    machine.forget_memory();
    machine.put_memory(start, &stack);
    let from = From { ip: registers.rip, sp: registers.rsp, bp: registers.rbp };
    let taken = machine.sample(from, How::default());
    let ending = taken.ending();
    if taken.sample().walk.is_some() {
        assert_eq!(taken.addresses(), stepped.addresses(), "{ending}");
        assert_eq!(ending, "to the first function");
    }
    ending
}

/// Nearly all walks come to the first function; the others know why they do not.
fn assert_nearly_all(flags: &[&str]) {
    let endings = walk_every_instruction(flags);
    let all: u32 = endings.values().sum();
    let whole = endings.get("to the first function").copied().unwrap_or(0);
    println!("{flags:?}: {endings:?}");
    assert!(all > 2_000 && f64::from(whole) >= 0.99 * f64::from(all), "{flags:?}: {endings:?}");
}

#[test]
fn every_instruction_of_a_program() {
    assert_nearly_all(&["-O2", "-Wl,-z,lazy"]);
}

#[test]
fn every_instruction_of_a_program_with_frame_pointers() {
    assert_nearly_all(&["-O1", "-fno-omit-frame-pointer", "-Wl,-z,now", "-no-pie"]);
}
