//! What `/proc` says of processes and threads. Names may hold blanks, parentheses and newlines, and any bytes.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

/// Reads a small file of `/proc` whole.
pub(crate) fn read_proc(path: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(16 << 20).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Some fields of `/proc/PID/stat`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stat {
    /// `R`, `S`, `D`, `Z`, ...
    pub state: u8,
    /// The parent's pid.
    pub parent: u32,
    /// When it started, in clock ticks since boot: with the pid, its identity.
    pub start_ticks: u64,
}

/// Reads the state of a process, or of a thread of it.
pub fn stat(pid: u32, tid: u32) -> Option<Stat> {
    parse_stat(&read_proc(&format!("/proc/{pid}/task/{tid}/stat"))?)
}

/// The name is in parentheses and may itself hold any of them: the fields begin behind the last.
fn parse_stat(bytes: &[u8]) -> Option<Stat> {
    let behind = bytes.iter().rposition(|&byte| byte == b')')? + 1;
    let mut fields = std::str::from_utf8(&bytes[behind..]).ok()?.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let parent = fields.next()?.parse().ok()?;
    // Field 22 of the line; state is field 3, so 17 fields lie between the parent (4) and it.
    let start_ticks = fields.nth(17)?.parse().ok()?;
    Some(Stat { state, parent, start_ticks })
}

/// The name of a thread. The kernel ends it with a newline, and it may hold others.
pub fn thread_name(pid: u32, tid: u32) -> Option<String> {
    let bytes = read_proc(&format!("/proc/{pid}/task/{tid}/comm"))?;
    Some(name(bytes.strip_suffix(b"\n").unwrap_or(&bytes)))
}

/// A name as text: bytes that are not UTF-8 are replaced, the name ends at a zero byte.
pub(crate) fn name(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// The threads of a process that live now.
pub fn threads(pid: u32) -> Vec<u32> {
    let Ok(folder) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// The process that a thread belongs to, by any of its tids.
pub(crate) fn process_of(tid: u32) -> Option<u32> {
    let status = read_proc(&format!("/proc/{tid}/status"))?;
    let line = status.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"Tgid:"))?;
    std::str::from_utf8(line).ok()?.trim().parse().ok()
}

/// These processes and all that descend from them, as far as they live.
pub(crate) fn with_descendants(mut pids: Vec<u32>) -> Vec<u32> {
    let Ok(folder) = std::fs::read_dir("/proc") else { return pids };
    let processes = folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let parents: Vec<(u32, u32)> = processes.filter_map(|pid| Some((pid, stat(pid, pid)?.parent))).collect();
    let mut at = 0;
    while let Some(&parent) = pids.get(at) {
        at += 1;
        for &(child, of) in &parents {
            if of == parent && !pids.contains(&child) {
                pids.push(child);
            }
        }
    }
    pids
}

/// The program that a process runs.
pub(crate) fn executable(pid: u32) -> Option<String> {
    let path: PathBuf = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    Some(path.to_string_lossy().into_owned())
}

/// The pid of a process in its own pid namespace, where that is another one.
pub(crate) fn inner_pid(pid: u32) -> Option<u32> {
    let status = read_proc(&format!("/proc/{pid}/status"))?;
    let line = status.split(|&byte| byte == b'\n').find(|line| line.starts_with(b"NSpid:"))?;
    let inner = std::str::from_utf8(line).ok()?.split_ascii_whitespace().next_back()?.parse().ok()?;
    (inner != pid).then_some(inner)
}

/// Time on CPU and time on the run queue of a thread since it began, in nanoseconds, by the scheduler's own count.
pub(crate) fn schedstat(pid: u32, tid: u32) -> Option<(u64, u64)> {
    let text = read_proc(&format!("/proc/{pid}/task/{tid}/schedstat"))?;
    let mut fields = std::str::from_utf8(&text).ok()?.split_ascii_whitespace();
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// The user whose rights we have.
pub(crate) fn own_uid() -> Option<u32> {
    let status = read_proc("/proc/self/status")?;
    let line = status.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"Uid:"))?;
    std::str::from_utf8(line).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// When a process began, in seconds since 1970; right to about a hundredth.
pub(crate) fn began_at(pid: u32) -> Option<f64> {
    const TICKS_A_SECOND: f64 = 100.0;
    let uptime = read_proc("/proc/uptime")?;
    let uptime: f64 = std::str::from_utf8(&uptime).ok()?.split_ascii_whitespace().next()?.parse().ok()?;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).ok()?.as_secs_f64();
    Some(now - uptime + stat(pid, pid)?.start_ticks as f64 / TICKS_A_SECOND)
}

/// Our own time on CPU, with that of threads that have ended.
pub(crate) fn own_cpu_ns() -> u64 {
    // Fields 14 and 15 of the line are in clock ticks, which Linux shows as hundredths of a second on every machine.
    const TICK_NS: u64 = 10_000_000;
    let bytes = read_proc("/proc/self/stat").unwrap_or_default();
    let behind = bytes.iter().rposition(|&byte| byte == b')').unwrap_or(0);
    let text = String::from_utf8_lossy(&bytes[behind..]).into_owned();
    text.split_ascii_whitespace().skip(12).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum::<u64>()
        * TICK_NS
}

/// What a blocked thread is doing: system call, stack pointer, instruction pointer. `None` if it runs or is gone.
///
/// # Errors
/// If we may not look: that takes the rights of ptrace.
pub(crate) fn blocked_in(pid: u32, tid: u32) -> io::Result<Option<Blocked>> {
    match std::fs::read(format!("/proc/{pid}/task/{tid}/syscall")) {
        Ok(text) => Ok(parse_blocked(&text)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound) => Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A thread blocked in the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Blocked {
    /// `None` if it is not in a system call (a page fault).
    pub(crate) syscall: Option<u32>,
    pub(crate) sp: u64,
    pub(crate) ip: u64,
}

fn parse_blocked(text: &[u8]) -> Option<Blocked> {
    let mut fields = std::str::from_utf8(text).ok()?.split_ascii_whitespace();
    let syscall: i64 = fields.next()?.parse().ok()?;
    let hex = |field: &str| u64::from_str_radix(field.strip_prefix("0x")?, 16).ok();
    let ip = hex(fields.next_back()?)?;
    let sp = hex(fields.next_back()?)?;
    Some(Blocked { syscall: u32::try_from(syscall).ok(), sp, ip })
}

/// One line of `/proc/PID/maps`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MapsLine {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) executable: bool,
    pub(crate) shared: bool,
    pub(crate) file_offset: u64,
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) path: Vec<u8>,
}

/// Whether the mappings of a living process may not be read: that takes the rights of ptrace.
pub(crate) fn hides_maps(pid: u32) -> bool {
    File::open(format!("/proc/{pid}/maps"))
        .is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// The mappings of a process.
pub(crate) fn maps(pid: u32) -> Vec<MapsLine> {
    let bytes = read_proc(&format!("/proc/{pid}/maps")).unwrap_or_default();
    bytes.split(|&byte| byte == b'\n').filter_map(parse_maps_line).collect()
}

fn parse_maps_line(line: &[u8]) -> Option<MapsLine> {
    let mut parts = line.splitn(6, |&byte| byte == b' ');
    let mut text = || std::str::from_utf8(parts.next()?).ok();
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = text()?.split_once('-')?;
    let permissions = text()?.as_bytes();
    let file_offset = hex(text()?)?;
    let (major, minor) = text()?.split_once(':')?;
    let inode = text()?.parse().ok()?;
    Some(MapsLine {
        start: hex(start)?,
        end: hex(end)?,
        executable: permissions.get(2) == Some(&b'x'),
        shared: permissions.get(3) == Some(&b's'),
        file_offset,
        device: hex(major)? << 32 | hex(minor)?,
        inode,
        path: parts.next().unwrap_or_default().trim_ascii_start().to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_parentheses_do_not_shift_the_fields() {
        let line = |name: &str| {
            format!(
                "42 ({name}) S 17 42 42 0 -1 4194304 100 0 0 0 5 6 0 0 20 0 1 0 987654 1000 200 18446744073709551615\n"
            )
        };
        for hostile in ["a b", ") R 1 2 (", "x\ny", "", "))))"] {
            let stat = parse_stat(line(hostile).as_bytes()).unwrap();
            assert_eq!((stat.state, stat.parent, stat.start_ticks), (b'S', 17, 987_654), "{hostile:?}");
        }
        assert_eq!(parse_stat(b"42 (cut"), None);
    }

    #[test]
    fn our_own_process() {
        let pid = std::process::id();
        assert!(threads(pid).contains(&pid));
        assert!(maps(pid).iter().any(|line| line.executable && line.path.ends_with(b"[vdso]")));
        assert_eq!(stat(pid, pid).unwrap().parent, std::os::unix::process::parent_id());
        assert!(executable(pid).unwrap().contains("uhr_collect"));
    }

    #[test]
    fn what_a_thread_is_blocked_in() {
        let sleep = b"230 0x0 0x0 0x7ffe 0x7ffe 0x0 0x0 0x7ffe00001000 0x7f0012345678\n";
        let expected = Blocked { syscall: Some(230), sp: 0x7ffe_0000_1000, ip: 0x7f00_1234_5678 };
        assert_eq!(parse_blocked(sleep), Some(expected));
        assert_eq!(parse_blocked(b"running\n"), None);
        assert_eq!(parse_blocked(b"-1 0x7ffe00001000 0x7f0012345678\n").unwrap().syscall, None);
        assert_eq!(parse_blocked(b""), None);
    }

    #[test]
    fn paths_with_blanks_in_maps() {
        let line = b"7f00-7f10 r-xp 00001000 fe:01 42                         /tmp/a b (deleted)";
        let parsed = parse_maps_line(line).unwrap();
        assert_eq!(
            (parsed.start, parsed.end, parsed.executable, parsed.shared),
            (0x7f00, 0x7f10, true, false)
        );
        assert_eq!(parsed.path, b"/tmp/a b (deleted)");
        assert_eq!(parse_maps_line(b"garbage"), None);
    }
}
