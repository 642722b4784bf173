//! The eBPF programs that the kernel has loaded, whoever loaded them: where the code is that it made of them, that code, and
//! the source that it was made from, as far as their BTF tells. All of it takes CAP_SYS_ADMIN, and a kernel that shows its
//! addresses (`bpf_prog_get_info_by_fd` in kernel/bpf/syscall.c).

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_sys::{bpf_func_info, bpf_line_info, bpf_prog_info};

use crate::log;

/// The most that is taken of one program, in bytes of code and in lines: larger than any that the verifier can go through.
const MAX_CODE: u32 = 16 << 20;
const MAX_LINES: u32 = 1 << 20;
/// Functions of one program (`BPF_MAX_SUBPROGS`, include/linux/bpf_verifier.h), with room for more.
const MAX_FUNCTIONS: u32 = 4096;

/// Where the code of a program is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProgramOutline {
    /// When it was loaded: nanoseconds of CLOCK_BOOTTIME.
    pub loaded_ns: u64,
    /// Its functions. None where the kernel does not show its addresses, or only interprets the program.
    pub functions: Vec<ProgramFunction>,
    /// It has code, but the kernel does not show where.
    pub is_hidden: bool,
}

/// Where a function of a program is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProgramFunction {
    /// Its first address (AVMA).
    pub start: u64,
    /// The address behind its last byte.
    pub end: u64,
    /// The name that the kernel gives it: `bpf_prog_TAG_NAME`.
    pub name: String,
}

/// What a program is made of.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProgramCode {
    /// Its functions, each with the code that the processor runs.
    pub functions: Vec<(ProgramFunction, Vec<u8>)>,
    /// Where its code is of another line than before, in the order of their addresses. None: it was loaded without BTF.
    pub lines: Vec<ProgramLine>,
}

/// From where on the code of a function was made from a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProgramLine {
    /// The address (AVMA).
    pub address: u64,
    /// The file, as the compiler wrote it.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// Its text.
    pub text: String,
}

/// The program that was loaded next after the one of this id; 0 for the first. `None`: there is none yet.
///
/// # Errors
/// What the kernel answers: that it takes CAP_SYS_ADMIN.
pub fn next_program(after: u32) -> io::Result<Option<u32>> {
    let mut next = 0;
    // SAFETY: libbpf writes one number there.
    match unsafe { libbpf_sys::bpf_prog_get_next_id(after, &raw mut next) } {
        0 => Ok(Some(next)),
        _ => Some(io::Error::last_os_error())
            .filter(|error| error.kind() != io::ErrorKind::NotFound)
            .map_or(Ok(None), Err),
    }
}

/// Where a program's code is.
///
/// # Errors
/// What the kernel answers: that the program is gone, or that it may not be looked at.
pub fn program_outline(id: u32) -> io::Result<ProgramOutline> {
    let program = Program::open(id)?;
    let functions = program.functions(program.names(None))?;
    let is_hidden = functions.is_empty() && program.info.jited_prog_len > 0;
    Ok(ProgramOutline { loaded_ns: program.info.load_time, functions, is_hidden })
}

/// A program's code and lines.
///
/// # Errors
/// As of [`program_outline`].
pub fn program_code(id: u32) -> io::Result<ProgramCode> {
    let program = Program::open(id)?;
    let btf = Btf::load(program.info.btf_id);
    let functions = program.functions(program.names(btf.as_ref()))?;
    let mut code = &program.code()?[..];
    let mut of = |function: ProgramFunction| {
        let length = usize::try_from(function.end - function.start).ok()?;
        let (own, rest) = code.split_at_checked(length)?;
        code = rest;
        Some((function, own.to_vec()))
    };
    let functions = functions.into_iter().map_while(&mut of).collect();
    let lines = btf.map(|btf| program.lines(&btf)).transpose()?.unwrap_or_default();
    Ok(ProgramCode { functions, lines })
}

/// What the kernel says of a program, without arrays.
pub(crate) fn program_info(program: BorrowedFd<'_>) -> io::Result<bpf_prog_info> {
    ask(program, bpf_prog_info::default())
}

fn ask(program: BorrowedFd<'_>, mut wanted: bpf_prog_info) -> io::Result<bpf_prog_info> {
    let mut bytes = size_of_val(&wanted) as u32;
    // SAFETY: each pointer in `wanted` is 0, or that of a live buffer of as many records as its count says, of the size that the
    // kernel itself has told (the methods of `Program` here are all that set any).
    let result =
        unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut wanted, &raw mut bytes) };
    if result == 0 { Ok(wanted) } else { Err(io::Error::last_os_error()) }
}

/// A program that is held, and what the kernel says of it.
struct Program {
    fd: OwnedFd,
    info: bpf_prog_info,
}

impl Program {
    fn open(id: u32) -> io::Result<Self> {
        // SAFETY: a plain system call.
        let fd = unsafe { libbpf_sys::bpf_prog_get_fd_by_id(id) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just given it to us alone.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let info = program_info(fd.as_fd())?;
        Ok(Self { fd, info })
    }

    /// Asks with the arrays that `wanted` points to. The kernel fills at most what their counts allow.
    fn ask(&self, wanted: bpf_prog_info) -> io::Result<bpf_prog_info> {
        ask(self.fd.as_fd(), wanted)
    }

    /// What to ask for one kind of array alone: the sizes of the kernel's records, which it insists on, and no others.
    fn nothing(&self) -> bpf_prog_info {
        bpf_prog_info {
            func_info_rec_size: self.info.func_info_rec_size,
            line_info_rec_size: self.info.line_info_rec_size,
            jited_line_info_rec_size: self.info.jited_line_info_rec_size,
            ..bpf_prog_info::default()
        }
    }

    fn code(&self) -> io::Result<Vec<u8>> {
        let length = self.info.jited_prog_len;
        if length > MAX_CODE {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut code = vec![0u8; length as usize];
        let told = self.ask(bpf_prog_info {
            jited_prog_len: length,
            jited_prog_insns: code.as_mut_ptr() as u64,
            ..self.nothing()
        })?;
        // To those who may not see addresses the kernel gives no code either, and takes back the pointer.
        code.truncate(if told.jited_prog_insns == 0 { 0 } else { told.jited_prog_len as usize });
        Ok(code)
    }

    /// The functions' places, in the order of their code. `names` are in that order.
    fn functions(&self, names: Vec<String>) -> io::Result<Vec<ProgramFunction>> {
        let count = self.info.nr_jited_ksyms.min(self.info.nr_jited_func_lens);
        if count > MAX_FUNCTIONS {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let (mut starts, mut lengths) = (vec![0u64; count as usize], vec![0u32; count as usize]);
        let told = self.ask(bpf_prog_info {
            nr_jited_ksyms: count,
            jited_ksyms: starts.as_mut_ptr() as u64,
            nr_jited_func_lens: count,
            jited_func_lens: lengths.as_mut_ptr() as u64,
            ..self.nothing()
        })?;
        if told.jited_ksyms == 0 || told.jited_func_lens == 0 {
            return Ok(Vec::new());
        }
        let place = |((start, length), name): ((u64, u32), String)| {
            let end = start.checked_add(u64::from(length)).filter(|_| start > 0 && length > 0)?;
            Some(ProgramFunction { start, end, name })
        };
        Ok(starts.into_iter().zip(lengths).zip(names).filter_map(place).collect())
    }

    /// What the kernel calls each function (`bpf_get_prog_name`): after its BTF where it has some, else after the program.
    fn names(&self, btf: Option<&Btf>) -> Vec<String> {
        let count = self.info.nr_jited_ksyms.clamp(1, MAX_FUNCTIONS) as usize;
        let tags = self.tags(count);
        let types = btf.map(|_| self.function_types()).unwrap_or_default();
        let own = text_of(&self.info.name.map(|byte| byte as u8));
        let name = |at: usize| {
            // The first function goes by the tag of all, though it has one of its own.
            let tag = tags.get(at).filter(|_| at > 0).unwrap_or(&self.info.tag);
            let tag: String = tag.iter().map(|byte| format!("{byte:02x}")).collect();
            let by_type = btf.zip(types.get(at)).and_then(|(btf, &id)| btf.type_name(id));
            match by_type.as_ref().unwrap_or(&own).as_str() {
                "" => format!("bpf_prog_{tag}"),
                name => format!("bpf_prog_{tag}_{name}"),
            }
        };
        (0..count).map(name).collect()
    }

    fn tags(&self, most: usize) -> Vec<[u8; 8]> {
        let count = self.info.nr_prog_tags.min(most as u32);
        let mut tags = vec![[0u8; 8]; count as usize];
        let wanted =
            bpf_prog_info { nr_prog_tags: count, prog_tags: tags.as_mut_ptr() as u64, ..self.nothing() };
        if self.ask(wanted).is_ok() { tags } else { Vec::new() }
    }

    /// The BTF types of the functions.
    fn function_types(&self) -> Vec<u32> {
        let count = self.info.nr_func_info.min(MAX_FUNCTIONS);
        if count == 0 || self.info.func_info_rec_size as usize != size_of::<bpf_func_info>() {
            return Vec::new();
        }
        let mut found = vec![bpf_func_info::default(); count as usize];
        let wanted =
            bpf_prog_info { nr_func_info: count, func_info: found.as_mut_ptr() as u64, ..self.nothing() };
        let told = self.ask(wanted).is_ok_and(|told| told.func_info != 0);
        if told { found.iter().map(|function| function.type_id).collect() } else { Vec::new() }
    }

    fn lines(&self, btf: &Btf) -> io::Result<Vec<ProgramLine>> {
        let count = self.info.nr_line_info.min(self.info.nr_jited_line_info);
        let is_known = self.info.line_info_rec_size as usize == size_of::<bpf_line_info>()
            && self.info.jited_line_info_rec_size as usize == size_of::<u64>();
        if count == 0 || count > MAX_LINES || !is_known {
            return Ok(Vec::new());
        }
        let mut lines = vec![bpf_line_info::default(); count as usize];
        let mut addresses = vec![0u64; count as usize];
        let told = self.ask(bpf_prog_info {
            nr_line_info: count,
            line_info: lines.as_mut_ptr() as u64,
            nr_jited_line_info: count,
            jited_line_info: addresses.as_mut_ptr() as u64,
            ..self.nothing()
        })?;
        if told.line_info == 0 || told.jited_line_info == 0 {
            return Ok(Vec::new());
        }
        let line = |(line, address): (bpf_line_info, u64)| {
            Some(ProgramLine {
                address,
                file: btf.text(line.file_name_off).filter(|file| !file.is_empty())?,
                // The column has the lower ten bits (`BPF_LINE_INFO_LINE_NUM`).
                line: Some(line.line_col >> 10).filter(|&line| line > 0)?,
                text: btf.text(line.line_off).unwrap_or_default(),
            })
        };
        let mut found: Vec<ProgramLine> = lines.into_iter().zip(addresses).filter_map(line).collect();
        found.sort_by_key(|line| line.address);
        Ok(found)
    }
}

/// The types and texts that came with a program. libbpf checks them as it loads them.
struct Btf(*mut libbpf_sys::btf);

impl Btf {
    fn load(id: u32) -> Option<Self> {
        log::divert();
        // SAFETY: libbpf gives what has to be freed, or null.
        let btf = (id != 0).then(|| unsafe { libbpf_sys::btf__load_from_kernel_by_id(id) });
        btf.filter(|btf| !btf.is_null()).map(Self)
    }

    fn text(&self, offset: u32) -> Option<String> {
        // SAFETY: libbpf answers null for an offset outside of its texts, and else a text that lives as long as `self`.
        let found = unsafe { libbpf_sys::btf__name_by_offset(self.0, offset) };
        // SAFETY: as above.
        (!found.is_null()).then(|| text_of(unsafe { CStr::from_ptr(found) }.to_bytes()))
    }

    fn type_name(&self, id: u32) -> Option<String> {
        // SAFETY: null, or a type that lives as long as `self`.
        let found = unsafe { libbpf_sys::btf__type_by_id(self.0, id).as_ref() }?;
        self.text(found.name_off).filter(|name| !name.is_empty())
    }
}

impl Drop for Btf {
    fn drop(&mut self) {
        // SAFETY: it came from libbpf and is not used any more.
        unsafe { libbpf_sys::btf__free(self.0) }
    }
}

/// Up to the first zero byte.
fn text_of(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
