//! The system calls of x86-64, and what a thread waits for in those that can block.

mod x86_64;

use crate::wait::WaitKind;
use x86_64::SYSCALLS;

/// A system call's number, its name, and the kind of wait it can be.
pub(crate) type Row = (u32, &'static str, Option<WaitKind>);

/// The name of a system call by its number on x86-64.
pub fn syscall_name(number: u32) -> Option<&'static str> {
    row(number).map(|row| row.1)
}

/// The number of a system call by its name.
pub fn syscall_number(name: &str) -> Option<u32> {
    SYSCALLS.iter().find(|row| row.1 == name).map(|row| row.0)
}

/// The row of a system call, if Linux 6.18 has it.
pub(crate) fn row(number: u32) -> Option<&'static Row> {
    SYSCALLS.binary_search_by_key(&number, |row| row.0).ok().and_then(|at| SYSCALLS.get(at))
}

/// The system call that a kernel function is the entry of (`__x64_sys_futex`), or is what the entry calls (`ksys_read`).
pub fn syscall_of_kernel_function(name: &str) -> Option<u32> {
    if let Some(name) = ENTRIES.iter().find_map(|prefix| name.strip_prefix(prefix)) {
        let listed = RENAMED.iter().find(|row| row.0 == name).map_or(name, |row| row.1);
        return syscall_number(listed);
    }
    // Several calls open by way of this one.
    if name == "do_sys_openat2" {
        return None;
    }
    // The entry itself is often inlined into the dispatcher; what it calls has nearly the same name. Where a call
    // never blocks the likeness is mostly chance (`do_exit`, `kernel_bind`).
    let name = CALLED_BY_ENTRIES.iter().find_map(|prefix| name.strip_prefix(prefix))?;
    SYSCALLS.iter().find(|row| row.1 == name && row.2.is_some()).map(|row| row.0)
}

/// How the names of entries begin.
const ENTRIES: &[&str] = &["__x64_sys_", "__se_sys_", "__do_sys_"];
/// How the names of what entries call begin.
const CALLED_BY_ENTRIES: &[&str] = &["ksys_", "do_sys_", "kernel_", "do_"];

/// Entries that are not called as the system call is.
const RENAMED: &[(&str, &str)] = &[
    ("newstat", "stat"),
    ("newfstat", "fstat"),
    ("newlstat", "lstat"),
    ("newuname", "uname"),
    ("sendfile64", "sendfile"),
    ("umount", "umount2"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_so_that_it_can_be_searched() {
        assert!(SYSCALLS.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(syscall_name(230), Some("clock_nanosleep"));
        assert_eq!(syscall_name(39), Some("getpid"));
        assert_eq!(syscall_name(469), Some("file_setattr"));
        assert_eq!(syscall_name(9999), None);
        assert_eq!(syscall_number("getppid"), Some(110));
    }

    #[test]
    fn kernel_functions() {
        assert_eq!(syscall_of_kernel_function("__x64_sys_futex"), Some(202));
        assert_eq!(syscall_of_kernel_function("__x64_sys_newfstat"), Some(5));
        assert_eq!(syscall_of_kernel_function("__x64_sys_getppid"), Some(110));
        assert_eq!(syscall_of_kernel_function("ksys_read"), Some(0));
        assert_eq!(syscall_of_kernel_function("kernel_wait4"), Some(61));
        assert_eq!(syscall_of_kernel_function("do_sys_poll"), Some(7));
        assert_eq!(syscall_of_kernel_function("do_sys_openat2"), None);
        assert_eq!(syscall_of_kernel_function("kernel_bind"), None);
        assert_eq!(syscall_of_kernel_function("do_wait"), None);
        assert_eq!(syscall_of_kernel_function("read"), None);
    }
}
