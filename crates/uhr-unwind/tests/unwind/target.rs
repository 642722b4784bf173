//! A program under test: compiled, run, stopped, described to the unwinder.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use uhr_model::object::ElfFile;
use uhr_model::{Avma, CodeAddress, FileOffset, StackEnding};
use uhr_unwind::{
    ProcessMemory, ProcessUnwinder, Registers, StackCopy, TargetMemory, UnwindCache, UnwindModule,
};

/// Compiles a source file with these words in front of it and after it; panics with the compiler's message.
pub(crate) fn compile(
    folder: &Path,
    command: &[&str],
    source_name: &str,
    source: &str,
    output: &str,
) -> PathBuf {
    let path = folder.join(source_name);
    std::fs::write(&path, source).unwrap();
    let result = folder.join(output);
    let done = Command::new(command[0])
        .current_dir(folder)
        .args(&command[1..])
        .arg(&path)
        .arg("-o")
        .arg(&result)
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", command[0]));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    result
}

struct Mapped {
    start: u64,
    end: u64,
    offset: u64,
    path: String,
}

/// A running child, ended when it is dropped.
pub(crate) struct Target {
    child: Child,
    /// The thread that is stopped: the main one, unless a test says otherwise.
    pub(crate) tid: libc::pid_t,
    seized: bool,
    mapped: Vec<Mapped>,
    symbols: HashMap<String, Symbols>,
    pub(crate) unwinder: ProcessUnwinder,
    pub(crate) cache: UnwindCache,
    pub(crate) modules: HashMap<String, Arc<UnwindModule>>,
}

/// One stopped moment, unwound.
#[derive(Debug)]
pub(crate) struct Moment {
    pub(crate) names: Vec<String>,
    pub(crate) frames: Vec<CodeAddress<Avma>>,
    pub(crate) ending: StackEnding,
    pub(crate) regs: libc::user_regs_struct,
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        if self.seized && self.tid != self.pid() as libc::pid_t {
            // The process has not ended until whoever traces its last thread has seen that end.
            // SAFETY: no status is asked for.
            unsafe { libc::waitpid(self.tid, std::ptr::null_mut(), libc::__WALL) };
        }
        let _ = self.child.wait();
    }
}

impl Target {
    pub(crate) fn run(command: &mut Command) -> Self {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        Self {
            tid: child.id() as libc::pid_t,
            child,
            seized: false,
            mapped: Vec::new(),
            symbols: HashMap::new(),
            unwinder: ProcessUnwinder::new(),
            cache: UnwindCache::new(),
            modules: HashMap::new(),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn memory(&self) -> ProcessMemory {
        ProcessMemory::new(self.pid())
    }

    /// The threads beside the main one, once there are `count` of them.
    pub(crate) fn other_threads(&self, count: usize) -> Vec<libc::pid_t> {
        loop {
            let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
            let tids = tasks.map(|task| task.unwrap().file_name().to_str().unwrap().parse().unwrap());
            let others: Vec<libc::pid_t> = tids.filter(|&tid| tid != self.pid() as libc::pid_t).collect();
            if others.len() >= count {
                return others;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Writes to the program's standard input, closes it, and waits for the program to end.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        let mut input = self.child.stdin.take().unwrap();
        std::io::Write::write_all(&mut input, bytes).unwrap();
        drop(input);
        self.child.wait().unwrap();
    }

    /// Reads the mappings anew.
    pub(crate) fn read_maps(&mut self) {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid())).unwrap();
        self.unwinder = ProcessUnwinder::new();
        self.mapped.clear();
        for line in maps.lines() {
            let mut words = line.split_ascii_whitespace();
            let (start, end) = words.next().unwrap().split_once('-').unwrap();
            if !words.next().unwrap().contains('x') || line.contains("[vsyscall]") {
                continue;
            }
            let hex = |text| u64::from_str_radix(text, 16).unwrap();
            let (start, end, offset) = (hex(start), hex(end), hex(words.next().unwrap()));
            let path = words.nth(2).unwrap_or("").to_owned();
            let module = self.module(&path, start, end);
            self.unwinder.map(Avma(start)..Avma(end), FileOffset(offset), module);
            self.mapped.push(Mapped { start, end, offset, path });
        }
    }

    fn module(&mut self, path: &str, start: u64, end: u64) -> Option<Arc<UnwindModule>> {
        if let Some(module) = self.modules.get(path) {
            return Some(module.clone());
        }
        let image = if path == "[vdso]" {
            let mut image = vec![0; (end - start) as usize];
            self.memory().read(Avma(start), &mut image).unwrap();
            image
        } else {
            std::fs::read(path).ok()?
        };
        let elf = ElfFile::parse(image.as_slice()).unwrap();
        let module = if path == "[vdso]" {
            std::fs::write(std::env::temp_dir().join(format!("uhr-vdso-{}", self.pid())), &image).unwrap();
            UnwindModule::from_image(&image).unwrap()
        } else {
            UnwindModule::read(&File::open(path).unwrap(), &elf)
        };
        self.symbols.insert(path.to_owned(), Symbols::read(path, &elf, self.pid()));
        let module = Arc::new(module);
        self.modules.insert(path.to_owned(), module.clone());
        Some(module)
    }

    /// The name of the function around an address: nm's, or `?` and the file's name where nm has none.
    pub(crate) fn name(&self, address: Avma) -> String {
        let Some(mapped) = self.mapped.iter().find(|one| (one.start..one.end).contains(&address.0)) else {
            return format!("unmapped {address}");
        };
        let Some(symbols) = self.symbols.get(&mapped.path) else { return "[generated]".into() };
        symbols
            .name(address.0 - mapped.start + mapped.offset)
            .unwrap_or_else(|| format!("?{}", Path::new(&mapped.path).file_name().unwrap().to_string_lossy()))
    }

    pub(crate) fn names(&self, frames: &[CodeAddress<Avma>]) -> Vec<String> {
        frames.iter().map(|frame| self.name(frame.lookup())).collect()
    }

    /// Stops the thread again and again until `wanted` says that this moment is the one; it then stays stopped.
    pub(crate) fn stop_when(&mut self, copy: usize, mut wanted: impl FnMut(&Moment) -> bool) -> Moment {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            self.stop();
            let regs = self.registers();
            self.read_maps();
            let moment = self.unwind(regs, copy);
            if wanted(&moment) {
                return moment;
            }
            assert!(Instant::now() < deadline, "the moment did not come; last: {moment:#?}");
            self.resume();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The moment when the innermost function is `name`.
    pub(crate) fn stop_in(&mut self, name: &str) -> Moment {
        self.stop_when(64 << 10, |moment| moment.names.first().is_some_and(|first| first == name))
    }

    /// Unwinds as a sample with a stack copy of at most `copy` bytes would be.
    pub(crate) fn unwind(&mut self, regs: libc::user_regs_struct, copy: usize) -> Moment {
        let mut bytes = vec![0; copy];
        let got = self.memory().read(Avma(regs.rsp), &mut bytes).unwrap_or(0);
        bytes.truncate(got);
        let registers = Registers::new(regs.rip, regs.rsp).with_bp(regs.rbp);
        let mut frames = Vec::new();
        let memory = self.memory();
        let stack = StackCopy { start: Avma(regs.rsp), bytes: &bytes };
        let ending = self.unwinder.unwind(registers, stack, Some(&memory), &mut self.cache, &mut frames);
        Moment { names: self.names(&frames), frames, ending, regs }
    }

    fn stop(&mut self) {
        let tid = self.tid;
        if !self.seized {
            // SAFETY: plain ptrace requests on our own child; no pointers are passed.
            let done = unsafe { libc::ptrace(libc::PTRACE_SEIZE, tid, 0, 0) };
            assert_eq!(done, 0, "PTRACE_SEIZE: {}", std::io::Error::last_os_error());
            self.seized = true;
        }
        // SAFETY: as above.
        assert_eq!(unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, tid, 0, 0) }, 0);
        loop {
            let mut status = 0;
            // SAFETY: `status` outlives the call.
            let waited = unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL) };
            assert_eq!(waited, tid);
            assert!(libc::WIFSTOPPED(status), "the program ended: {status:#x}");
            if status >> 16 == libc::PTRACE_EVENT_STOP {
                return;
            }
            // A signal on its way in: pass it on, and wait for our own stop.
            // SAFETY: as above.
            unsafe { libc::ptrace(libc::PTRACE_CONT, tid, 0, libc::WSTOPSIG(status)) };
        }
    }

    pub(crate) fn resume(&mut self) {
        // SAFETY: as above.
        unsafe { libc::ptrace(libc::PTRACE_CONT, self.tid, 0, 0) };
    }

    /// Runs one instruction.
    pub(crate) fn step(&mut self) -> libc::user_regs_struct {
        let tid = self.tid;
        let mut status = 0;
        // SAFETY: as above.
        unsafe {
            libc::ptrace(libc::PTRACE_SINGLESTEP, tid, 0, 0);
            libc::waitpid(tid, &raw mut status, libc::__WALL);
        }
        assert!(libc::WIFSTOPPED(status));
        self.registers()
    }

    pub(crate) fn registers(&self) -> libc::user_regs_struct {
        // SAFETY: a struct of integers.
        let mut regs: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel fills `regs`, which outlives the call.
        let done = unsafe { libc::ptrace(libc::PTRACE_GETREGS, self.tid, 0, &raw mut regs) };
        assert_eq!(done, 0);
        regs
    }
}

/// Functions of one file by file offset, from nm.
struct Symbols(Vec<(u64, u64, String)>);

impl Symbols {
    fn read(path: &str, elf: &ElfFile, pid: u32) -> Self {
        let copy = std::env::temp_dir().join(format!("uhr-vdso-{pid}"));
        let path = if path == "[vdso]" { copy.to_str().unwrap() } else { path };
        let mut found = Vec::new();
        for flags in [&["-S", "--defined-only"][..], &["-S", "-D", "--defined-only"]] {
            let listing = Command::new("nm").args(flags).arg(path).output().unwrap();
            for line in String::from_utf8_lossy(&listing.stdout).lines() {
                let mut words: Vec<&str> = line.split_ascii_whitespace().collect();
                if words.len() == 3 {
                    words.insert(1, "0");
                }
                let [address, size, kind, name] = words[..] else { continue };
                if !"tTwWiu".contains(kind) {
                    continue;
                }
                let number = |text| u64::from_str_radix(text, 16).unwrap();
                let segment = elf.segments.iter().find(|segment| {
                    segment.executable
                        && (segment.address.0..segment.address.0 + segment.memory_size)
                            .contains(&number(address))
                });
                if let Some(segment) = segment {
                    let start = number(address) - segment.address.0 + segment.offset.0;
                    found.push((start, number(size), name.split('@').next().unwrap().to_owned()));
                }
            }
        }
        found.sort();
        let _ = std::fs::remove_file(copy);
        Self(found)
    }

    fn name(&self, offset: u64) -> Option<String> {
        let before = &self.0[..self.0.partition_point(|one| one.0 <= offset)];
        let start = before.last()?.0;
        let here = before.iter().rev().take_while(|one| one.0 == start);
        here.filter(|one| one.1 == 0 || offset < one.0 + one.1)
            .map(|one| one.2.clone())
            .min_by_key(|name| name.len())
    }
}
