//! A program that is run one instruction at a time, and beside it the stack of the addresses that its calls have pushed and its
//! returns have not taken yet.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// What led to a place on the stack.
#[derive(Clone, Copy, Debug)]
enum Above {
    Call(u64),
    Signal(u64),
}

/// A program that stands between two instructions.
pub(super) struct Stepped {
    child: Child,
    pub(super) memory: File,
    pub(super) registers: libc::user_regs_struct,
    /// The outermost first.
    above: Vec<Above>,
    /// What is mapped executable: where, at which offset of which file.
    pub(super) code: Vec<(Range<u64>, u64, String)>,
    /// It has changed since this was last asked.
    pub(super) has_changed: bool,
    pub(super) stack_end: u64,
    pub(super) has_ended: bool,
}

impl Drop for Stepped {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Stepped {
    pub(super) fn start(program: &Path) -> Self {
        let mut command = Command::new(program);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        // SAFETY: one system call, which needs no memory, between fork and exec.
        unsafe {
            command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
                -1 => Err(std::io::Error::last_os_error()),
                _ => Ok(()),
            });
        }
        let child = command.spawn().unwrap();
        let mut status = 0;
        // SAFETY: `status` outlives the call.
        unsafe { libc::waitpid(child.id() as libc::pid_t, &raw mut status, 0) };
        assert!(libc::WIFSTOPPED(status));
        let memory = File::open(format!("/proc/{}/mem", child.id())).unwrap();
        // SAFETY: plain numbers.
        let registers = unsafe { std::mem::zeroed() };
        let above = Vec::new();
        let mut started = Self {
            child,
            memory,
            registers,
            above,
            code: Vec::new(),
            has_changed: true,
            stack_end: 0,
            has_ended: false,
        };
        started.read_registers();
        started.read_maps();
        started
    }

    fn read_registers(&mut self) {
        let pid = self.child.id() as libc::pid_t;
        // SAFETY: the child is stopped and ours, and the registers have room for what is written.
        let done = unsafe { libc::ptrace(libc::PTRACE_GETREGS, pid, 0, &raw mut self.registers) };
        assert_eq!(done, 0);
    }

    pub(super) fn word(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        self.memory.read_exact_at(&mut bytes, at).unwrap();
        u64::from_ne_bytes(bytes)
    }

    /// Runs until something happens, and says by which signal it stopped then. `None`: it has ended.
    fn run(&mut self, signal: i32) -> Option<i32> {
        let pid = self.child.id() as libc::pid_t;
        let mut status = 0;
        // SAFETY: the child is stopped and ours; `status` outlives the call.
        unsafe {
            assert_eq!(libc::ptrace(libc::PTRACE_SINGLESTEP, pid, 0, signal), 0);
            libc::waitpid(pid, &raw mut status, 0);
        }
        self.has_ended = libc::WIFEXITED(status);
        libc::WIFSTOPPED(status).then(|| {
            self.read_registers();
            libc::WSTOPSIG(status)
        })
    }

    /// One instruction, and what it did to the stack.
    pub(super) fn step(&mut self) -> Option<()> {
        let before = self.registers;
        let mut code = [0; 16];
        let _ = self.memory.read_at(&mut code, before.rip);
        let prefixes =
            code.iter().take_while(|byte| matches!(byte, 0xf2 | 0xf3 | 0x3e | 0x40..=0x4f)).count();
        let code = &code[prefixes..];
        let mut signal = self.run(0)?;
        match code {
            [0xe8, ..] => self.above.push(Above::Call(self.word(self.registers.rsp))),
            [0xff, mode, ..] if mode >> 3 & 7 == 2 => {
                self.above.push(Above::Call(self.word(self.registers.rsp)));
            }
            [0xc3 | 0xc2, ..] => match self.above.pop() {
                Some(Above::Call(address)) => assert_eq!(address, self.registers.rip),
                other => panic!("{other:?}"),
            },
            [0x0f, 0x05, ..] if before.rax == libc::SYS_rt_sigreturn as u64 => match self.above.pop() {
                Some(Above::Signal(address)) => assert_eq!(address, self.registers.rip),
                other => panic!("{other:?}"),
            },
            [0x0f, 0x05, ..] => self.read_maps(),
            _ => {}
        }
        if signal != libc::SIGTRAP {
            self.above.push(Above::Signal(self.registers.rip));
            signal = self.run(signal)?;
            assert_eq!(signal, libc::SIGTRAP, "it stands at the handler's first instruction");
            self.above.push(Above::Call(self.word(self.registers.rsp)));
        }
        Some(())
    }

    /// The instruction, and what its callers return to, innermost first.
    pub(super) fn addresses(&self) -> Vec<u64> {
        let above = self.above.iter().rev().map(|above| match above {
            Above::Call(address) | Above::Signal(address) => *address,
        });
        [self.registers.rip].into_iter().chain(above).collect()
    }

    /// Whether any of them is in a file whose path has this in it.
    pub(super) fn is_in(&self, path: &str) -> bool {
        let own = || self.code.iter().filter(|(_, _, file)| file.contains(path));
        self.addresses().iter().any(|address| own().any(|(range, ..)| range.contains(address)))
    }

    fn read_maps(&mut self) {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.child.id())).unwrap();
        let mut code = Vec::new();
        for line in maps.lines() {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let hex = |text| u64::from_str_radix(text, 16).unwrap();
            let (start, end) = words[0].split_once('-').unwrap();
            let path = words.get(5).copied().unwrap_or("");
            if path == "[stack]" {
                self.stack_end = hex(end);
            }
            if words[1].contains('x') && path != "[vsyscall]" {
                code.push((hex(start)..hex(end), hex(words[2]), path.to_owned()));
            }
        }
        self.has_changed |= code != self.code;
        self.code = code;
    }
}
