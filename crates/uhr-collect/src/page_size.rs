//! How large the pages are that faults brought: the kernel tells of a living process's page table, without rights over it
//! beyond those that reading its memory takes (`PAGEMAP_SCAN`, Linux 6.7; Documentation/admin-guide/mm/pagemap.rst).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::os::fd::AsRawFd;

use uhr_model::{Avma, PageSize};

/// Page tables that are held open. More processes than that at a time have no page sizes.
const MAX_OPEN: usize = 256;
const PAGE: u64 = 4096;

/// `_IOWR('f', 16, struct pm_scan_arg)` (include/uapi/linux/fs.h).
const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_HUGE: u64 = 1 << 6;

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// The page tables of processes, by row of the process.
#[derive(Debug, Default)]
pub(crate) struct PageSizes {
    open: HashMap<u32, File>,
    /// The kernel does not know the question.
    is_refused: bool,
}

impl PageSizes {
    /// The size of the page that an address of a process is in now.
    pub(crate) fn at(&mut self, (process, pid): (u32, u32), address: Avma) -> PageSize {
        if self.is_refused {
            return PageSize::Unknown;
        }
        if self.open.len() >= MAX_OPEN {
            self.open.clear();
        }
        let file = match self.open.entry(process) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(free) => match File::open(format!("/proc/{pid}/pagemap")) {
                Ok(file) => free.insert(file),
                Err(_) => return PageSize::Unknown,
            },
        };
        scan(file, address).unwrap_or_else(|error| {
            self.is_refused = error.raw_os_error() == Some(libc::ENOTTY);
            PageSize::Unknown
        })
    }
}

fn scan(file: &File, address: Avma) -> std::io::Result<PageSize> {
    let start = address.0 & !(PAGE - 1);
    let mut found = [PageRegion::default(); 1];
    let mut scan = Scan {
        size: size_of::<Scan>() as u64,
        start,
        end: start.saturating_add(PAGE),
        vec: found.as_mut_ptr() as u64,
        vec_len: 1,
        category_mask: PAGE_IS_PRESENT,
        return_mask: PAGE_IS_PRESENT | PAGE_IS_HUGE,
        ..Scan::default()
    };
    // SAFETY: the kernel reads and writes `scan`, whose size it is told, and writes at most `vec_len` regions to `found`; both
    // live for the whole call.
    let count = unsafe { libc::ioctl(file.as_raw_fd(), PAGEMAP_SCAN, &raw mut scan) };
    match count {
        0 => Ok(PageSize::Unknown),
        1.. if found[0].categories & PAGE_IS_HUGE != 0 => Ok(PageSize::Huge),
        1.. => Ok(PageSize::Base),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_stack_has_small_pages() {
        let here = 0_u8;
        let mut sizes = PageSizes::default();
        let size = sizes.at((0, std::process::id()), Avma(&raw const here as u64));
        assert!(size == PageSize::Base || sizes.is_refused, "{size:?}");
        assert_eq!(sizes.at((0, std::process::id()), Avma(0)), PageSize::Unknown);
        assert_eq!(sizes.at((1, u32::MAX), Avma(0)), PageSize::Unknown);
    }
}
