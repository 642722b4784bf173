//! What a process calls its anonymous memory now.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

use uhr_model::Avma;

use crate::mapping_names::name_of;
use crate::procfs;
use crate::tasks::Process;

/// Memory is asked for its name again after so long,
const PAUSE_NS: u64 = 1_000_000_000;
/// and a whole list that tells nothing new at last after so long: it takes 1 ms for 1,000 mappings.
const MOST_PAUSE_NS: u64 = 64_000_000_000;
/// `_IOWR('f', 17, struct procmap_query)` (include/uapi/linux/fs.h).
const PROCMAP_QUERY: libc::c_ulong = 0xc068_6611;
/// Bytes that names are read into: longer ones are none of a program's own (`ANON_VMA_NAME_MAX_LEN` is 80).
const NAME_BYTES: usize = 128;

/// `struct procmap_query`.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    mapping_flags: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    device: [u32; 2],
    name_size: u32,
    build_id_size: u32,
    name: u64,
    build_id: u64,
}

/// Memory of one name (empty: of none).
type Named = (Range<u64>, Vec<u8>);

/// When the list of a process's mappings was read for their names, and how long it is not to be read again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NamesRead {
    at_ns: u64,
    pause_ns: u64,
}

impl NamesRead {
    /// Whether it is time again. As long as `is_new`, what was read then told something new, it is read every second; otherwise
    /// ever more seldom, for the list may be long.
    fn is_due(&self, now_ns: u64) -> bool {
        self.pause_ns == 0 || now_ns.saturating_sub(self.at_ns) >= self.pause_ns
    }

    fn done(&mut self, is_new: bool, now_ns: u64) {
        let longer = self.pause_ns.saturating_mul(2).min(MOST_PAUSE_NS);
        *self = Self { at_ns: now_ns, pause_ns: if is_new { PAUSE_NS } else { longer.max(PAUSE_NS) } };
    }
}

/// How processes are asked.
#[derive(Debug)]
pub(crate) enum AnonymousNames {
    /// Not at all: the kernel keeps no names.
    NotKept,
    /// For one address.
    Query,
    /// By reading the list of their mappings.
    List,
}

impl AnonymousNames {
    pub(crate) fn new() -> Self {
        if are_kept() { Self::Query } else { Self::NotKept }
    }

    /// Names what `space` has at an address, if the process may have named it since it was last asked. False: it cannot be
    /// asked any more.
    pub(crate) fn see(&mut self, process: &mut Process, pid: u32, address: Avma, now_ns: u64) -> bool {
        let Some((_, mapped)) = process.space.find(address) else { return true };
        let is_fresh = mapped.asked_ns > 0 && now_ns.saturating_sub(mapped.asked_ns) < PAUSE_NS;
        if matches!(self, Self::NotKept) || is_fresh || !mapped.may_be_named() {
            return true;
        }
        let is_named = mapped.name.is_some();
        if matches!(self, Self::Query) {
            match ask(pid, address.0) {
                Ok((range, name)) => process.name(range, &name, now_ns),
                Err(error) if error.kind() == io::ErrorKind::Unsupported => *self = Self::List,
                Err(_) => return is_named,
            }
        }
        if matches!(self, Self::List) && process.names_read.is_due(now_ns) {
            all(pid).into_iter().for_each(|(range, name)| process.name(range, &name, now_ns));
            let is_new = process.space.find(address).is_some_and(|(_, mapped)| mapped.asked_ns == now_ns);
            process.names_read.done(is_new, now_ns);
        }
        true
    }
}

impl Process {
    fn name(&mut self, range: Range<u64>, name: &[u8], now_ns: u64) {
        self.space.name(&(Avma(range.start)..Avma(range.end)), name_of(name).as_ref(), now_ns);
    }
}

/// Whether the kernel keeps such names (`CONFIG_ANON_VMA_NAME`): tried with a page of our own.
fn are_kept() -> bool {
    const BYTES: usize = 4096;
    let (protection, flags) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, which only this function knows and takes away again; the name ends with a 0 and is copied.
    unsafe {
        let page = libc::mmap(std::ptr::null_mut(), BYTES, protection, flags, -1, 0);
        if page == libc::MAP_FAILED {
            return false;
        }
        let kept = libc::prctl(libc::PR_SET_VMA, libc::PR_SET_VMA_ANON_NAME, page, BYTES, c"uhr".as_ptr());
        libc::munmap(page, BYTES);
        kept == 0
    }
}

/// Asks for the memory around an address: 3 us, the file's opening included.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`]: the kernel does not know the question (before Linux 6.11). Others: the process is gone, or
/// nothing is mapped there.
fn ask(pid: u32, address: u64) -> io::Result<Named> {
    let maps = File::open(format!("/proc/{pid}/maps"))?;
    let mut name = [0_u8; NAME_BYTES];
    let mut query = Query {
        size: size_of::<Query>() as u64,
        address,
        name_size: NAME_BYTES as u32,
        name: name.as_mut_ptr() as u64,
        ..Query::default()
    };
    // SAFETY: the kernel reads and writes `query`, whose size it is told, and writes at most `name_size` bytes to `name`; both
    // live for the whole call.
    let done = unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY, &raw mut query) };
    if done != 0 {
        let error = io::Error::last_os_error();
        return Err(match error.raw_os_error() {
            Some(libc::ENOTTY) => io::ErrorKind::Unsupported.into(),
            _ => error,
        });
    }
    // With its final 0; none at all for memory without a name.
    let name = name.get(..query.name_size as usize).unwrap_or_default();
    Ok((query.start..query.end, name.strip_suffix(&[0]).unwrap_or_default().to_vec()))
}

/// All memory of a process that it has named, out of the whole list of its mappings.
fn all(pid: u32) -> Vec<Named> {
    let lines = procfs::maps(pid).into_iter();
    lines
        .filter(|line| line.path.starts_with(b"[anon"))
        .map(|line| (line.start..line.end, line.path))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_memory() {
        let own = std::process::id();
        let here = 0_u8;
        let at = &raw const here as u64;
        match ask(own, at) {
            Ok((range, _)) => assert!(range.contains(&at)),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::Unsupported),
        }
        let heap = procfs::maps(own).into_iter().find(|line| line.path == b"[heap]").unwrap();
        if let Ok((range, name)) = ask(own, heap.start) {
            assert_eq!((range.start, name.as_slice()), (heap.start, &b"[heap]"[..]));
        }
        assert!(ask(own, 0).is_err() && ask(u32::MAX, at).is_err());
        assert!(all(u32::MAX).is_empty());
    }

    #[test]
    fn a_list_that_tells_nothing_new_is_read_ever_more_seldom() {
        let mut read = NamesRead::default();
        let mut reads = Vec::new();
        for second in 1..300 {
            if read.is_due(second * PAUSE_NS) {
                reads.push(second);
                read.done(second == 32, second * PAUSE_NS);
            }
        }
        assert_eq!(reads, [1, 2, 4, 8, 16, 32, 33, 35, 39, 47, 63, 95, 159, 223, 287]);
    }

    #[test]
    fn memory_that_we_have_named() {
        if !are_kept() {
            eprintln!("SKIPPED: this kernel keeps no names of anonymous memory (CONFIG_ANON_VMA_NAME)");
            return;
        }
        let (protection, flags) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, which only this test knows; the name ends with a 0 and is copied.
        let start = unsafe {
            let page = libc::mmap(std::ptr::null_mut(), 8192, protection, flags, -1, 0);
            assert_ne!(page, libc::MAP_FAILED);
            let name = c"uhr test".as_ptr();
            assert_eq!(libc::prctl(libc::PR_SET_VMA, libc::PR_SET_VMA_ANON_NAME, page, 8192, name), 0);
            page as u64
        };
        let named = (start..start + 8192, b"[anon:uhr test]".to_vec());
        assert!(all(std::process::id()).contains(&named));
        match ask(std::process::id(), start + 5000) {
            Ok(asked) => assert_eq!(asked, named),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::Unsupported),
        }
    }
}
