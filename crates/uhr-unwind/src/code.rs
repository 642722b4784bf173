#![forbid(unsafe_code)]
//! The few x86-64 instructions that say what a place in code is: what stands before a return address, and what begins at
//! it. What is not recognised is no answer.

/// Bytes before and from an address on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CodeAround {
    before: [u8; Self::BEFORE],
    after: [u8; Self::AFTER],
    /// How many of `after` could be read; `before` is all there or all zero.
    length: usize,
}

/// The call that a return address stands behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Call {
    /// `call rel32`, to this address.
    To(u64),
    /// A call through a register or memory.
    Indirect,
    /// The call with which glibc runs the function of a new thread.
    ThreadStart,
}

impl CodeAround {
    /// `mov $15, %rax; syscall`, and the same with `%eax`.
    pub(super) const SIGNAL_RETURNS: [&[u8]; 2] =
        [&[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05], &[0xb8, 15, 0, 0, 0, 0x0f, 0x05]];
    /// Where `crosscall1` of Go's runtime/cgo calls the function of a thread that C has begun: `call *%rbx`, then everything
    /// is popped that C wants back. It keeps no frame pointer.
    pub(super) const GO_THREAD_START: &[u8] =
        &[0xff, 0xd3, 0x41, 0x5f, 0x41, 0x5e, 0x41, 0x5d, 0x41, 0x5c, 0x5d, 0x5b, 0xc3];
    pub(super) const BEFORE: usize = 17;
    pub(super) const AFTER: usize = 48;

    /// The bytes from `BEFORE` before an address on, of which `length` from the address on could be read.
    pub(super) fn new(bytes: &[u8; Self::BEFORE + Self::AFTER], length: usize) -> Option<Self> {
        let (before, after) = bytes.split_first_chunk()?;
        Some(Self { before: *before, after: *after.first_chunk()?, length: length.min(Self::AFTER) })
    }

    fn after(&self) -> &[u8] {
        &self.after[..self.length]
    }

    /// The call that ends right before the address `at` that this is around.
    pub(super) fn call_before(&self, at: u64) -> Option<Call> {
        if let [0xe8, relative @ ..] = self.before.last_chunk::<5>()? {
            return Some(Call::To(at.wrapping_add_signed(i64::from(i32::from_le_bytes(*relative)))));
        }
        if self.is_thread_start() {
            return Some(Call::ThreadStart);
        }
        // ff /2: opcode, ModRM, SIB where the ModRM asks for one, displacement: two to seven bytes.
        (2..=7usize)
            .any(|length| is_indirect_call(&self.before[Self::BEFORE - length..]))
            .then_some(Call::Indirect)
    }

    /// glibc's `start_thread` takes a thread's function and, right above it, its argument out of `struct pthread`, some
    /// 1600 bytes in (2.36: `mov 0x640(%rax), %rdi; call *0x638(%rax)`; others count from `%fs`).
    fn is_thread_start(&self) -> bool {
        const OFFSETS: std::ops::Range<u32> = 0x500..0x800;
        let (argument, function) = match self.before {
            [.., 0x64, 0x48, 0x8b, 0x3c, 0x25, a, b, c, d, 0x64, 0xff, 0x14, 0x25, e, f, g, h] => {
                ([a, b, c, d], [e, f, g, h])
            }
            [.., 0x48, 0x8b, load, a, b, c, d, 0xff, call, e, f, g, h]
                if load & 0xf8 == 0xb8 && call & 0xf8 == 0x90 && load & 7 == call & 7 =>
            {
                ([a, b, c, d], [e, f, g, h])
            }
            _ => return false,
        };
        let (argument, function) = (u32::from_le_bytes(argument), u32::from_le_bytes(function));
        OFFSETS.contains(&function) && argument == function + 8
    }

    /// Whether the code is `rt_sigreturn`, which returns from a signal handler: system call 15.
    pub(super) fn is_signal_return(&self) -> bool {
        Self::SIGNAL_RETURNS.iter().any(|form| self.after().starts_with(form))
    }

    /// Whether the code ends the thread or the program without another call: where musl's `clone` called the thread's
    /// function from. The kernel does not come back from `exit`, so a `hlt` stands behind the `syscall`.
    pub(super) fn ends_the_thread(&self) -> bool {
        self.after().windows(3).take(16).any(|code| code == [0x0f, 0x05, 0xf4])
    }

    /// Whether the function of a thread of Go returns to here. Beyond lies the same code of C in all of them, which has no
    /// call frame information where Go's own linker was used.
    pub(super) fn is_go_thread_start(&self) -> bool {
        let (call, behind) = Self::GO_THREAD_START.split_at(2);
        self.before.ends_with(call) && self.after().starts_with(behind)
    }

    /// Whether this is where a goroutine's function returns to: one `nop` into Go's `goexit`, before its call.
    pub(super) fn is_goroutine_exit(&self) -> bool {
        self.before[Self::BEFORE - 1] == 0x90 && matches!(self.after(), [0xe8, _, _, _, _, 0x90, ..])
    }

    /// Whether the address is the start of a function with a frame pointer (0 bytes pushed), or right behind its
    /// first push (8 bytes): then the return address is that far above the stack pointer.
    pub(super) fn in_prologue(&self) -> Option<u64> {
        const MOV: &[u8] = &[0x48, 0x89, 0xe5];
        const MOV_OTHER_FORM: &[u8] = &[0x48, 0x8b, 0xec];
        let after = self.after();
        let without_landing_pad = after.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(after);
        let is_mov = |code: &[u8]| code.starts_with(MOV) || code.starts_with(MOV_OTHER_FORM);
        if without_landing_pad.strip_prefix(&[0x55]).is_some_and(is_mov) {
            return Some(0);
        }
        (self.before[Self::BEFORE - 1] == 0x55 && is_mov(after)).then_some(8)
    }
}

/// Whether these bytes are one whole `call *operand` (ff /2) in 64-bit code, with or without a REX prefix.
fn is_indirect_call(code: &[u8]) -> bool {
    let code = match code {
        [0x40..=0x4f, rest @ ..] => rest,
        _ => code,
    };
    let [0xff, modrm, rest @ ..] = code else { return false };
    let (mode, operation, operand) = (modrm >> 6, modrm >> 3 & 7, modrm & 7);
    let scaled = mode != 3 && operand == 4;
    let displacement = match mode {
        0 if operand == 5 => 4,
        0 if scaled && rest.first().is_some_and(|sib| sib & 7 == 5) => 4,
        1 => 1,
        2 => 4,
        _ => 0,
    };
    operation == 2 && rest.len() == usize::from(scaled) + displacement
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(before: &[u8], after: &[u8]) -> CodeAround {
        let mut bytes = [0; CodeAround::BEFORE + CodeAround::AFTER];
        bytes[CodeAround::BEFORE - before.len()..CodeAround::BEFORE].copy_from_slice(before);
        bytes[CodeAround::BEFORE..][..after.len()].copy_from_slice(after);
        CodeAround::new(&bytes, CodeAround::AFTER).unwrap()
    }

    #[test]
    fn calls() {
        let before = |bytes: &[u8]| around(bytes, &[]).call_before(0x1000);
        assert_eq!(before(&[0xe8, 0xfb, 0xff, 0xff, 0xff]), Some(Call::To(0xffb)));
        assert_eq!(before(&[0xff, 0xd0]), Some(Call::Indirect)); // call *%rax
        assert_eq!(before(&[0x41, 0xff, 0xd4]), Some(Call::Indirect)); // call *%r12
        assert_eq!(before(&[0xff, 0x50, 0x18]), Some(Call::Indirect)); // call *0x18(%rax)
        assert_eq!(before(&[0xff, 0x15, 1, 2, 3, 4]), Some(Call::Indirect)); // call *disp(%rip)
        assert_eq!(before(&[0x41, 0xff, 0x54, 0xc5, 0x08]), Some(Call::Indirect)); // call *8(%r13,%rax,8)
        let load = [0x48, 0x8b, 0xb8, 0x40, 6, 0, 0];
        assert_eq!(before(&[&load[..], &[0xff, 0x90, 0x38, 6, 0, 0]].concat()), Some(Call::ThreadStart));
        assert_eq!(before(&[&load[..], &[0xff, 0x90, 0x48, 6, 0, 0]].concat()), Some(Call::Indirect));
        assert_eq!(before(&[0xff, 0xe0]), None); // jmp *%rax
        assert_eq!(before(&[0x90]), None);
    }

    #[test]
    fn prologues() {
        assert_eq!(around(&[], &[0x55, 0x48, 0x89, 0xe5]).in_prologue(), Some(0));
        assert_eq!(around(&[], &[0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5]).in_prologue(), Some(0));
        assert_eq!(around(&[0x55], &[0x48, 0x89, 0xe5]).in_prologue(), Some(8));
        assert_eq!(around(&[0x90], &[0x48, 0x89, 0xe5]).in_prologue(), None);
    }
}
