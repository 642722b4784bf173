//! Resident memory of each process, polled.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use uhr_recording::RecordingWriter;
use uhr_recording::tables::ResidentRow;

use crate::tasks::Process;

/// How often, at most.
const SHORTEST: Duration = Duration::from_millis(50);
/// Reading one process takes about 15 us here, and may take one thousandth of a CPU in all: with many processes it
/// becomes rarer. (Not measured as it goes: on a busy machine one poll that was interrupted would put off the next for
/// seconds.)
const PAUSE_A_PROCESS: Duration = Duration::from_millis(15);

/// Polls the resident memory of processes.
#[derive(Debug)]
pub(crate) struct ResidentPoll {
    next: Instant,
    /// `/proc/PID/status`, kept open: a descriptor of a process that ended reads nothing, even when its pid is reused.
    open: HashMap<u32, File>,
}

/// Descriptors kept open for polling.
const MAX_OPEN: usize = 512;

impl ResidentPoll {
    pub(crate) fn new() -> Self {
        Self { next: Instant::now(), open: HashMap::new() }
    }

    /// Whether it is time to poll.
    pub(crate) fn is_due(&self) -> bool {
        Instant::now() >= self.next
    }

    /// Reads every living process once.
    pub(crate) fn poll<'a>(
        &mut self,
        processes: impl Iterator<Item = &'a mut Process>,
        now_ns: u64,
        writer: &mut RecordingWriter,
    ) {
        let (mut seen, mut polled) = (HashMap::new(), 0);
        for process in processes {
            polled += 1;
            let (id, pid) = (process.row.id, process.row.pid);
            let file = self.open.remove(&id).or_else(|| File::open(format!("/proc/{pid}/status")).ok());
            let Some(file) = file else { continue };
            let mut text = [0; 4096];
            let length = file.read_at(&mut text, 0).unwrap_or(0);
            if let Some([anonymous_bytes, file_bytes, shared_bytes]) = parse(&text[..length]) {
                writer.push_resident(ResidentRow {
                    time_ns: now_ns,
                    process: id,
                    anonymous_bytes,
                    file_bytes,
                    shared_bytes,
                });
            }
            if seen.len() < MAX_OPEN {
                seen.insert(id, file);
            }
        }
        self.open = seen;
        self.next = Instant::now() + SHORTEST.max(PAUSE_A_PROCESS * polled);
    }
}

/// `RssAnon`, `RssFile` and `RssShmem` of `/proc/PID/status`, in bytes. A process that is ending has none.
fn parse(status: &[u8]) -> Option<[u64; 3]> {
    let text = String::from_utf8_lossy(status);
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    Some([value("RssAnon:")?, value("RssFile:")?, value("RssShmem:")?])
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn the_three_kinds() {
        let status =
            b"Name:\tx\nVmRSS:\t   6 kB\nRssAnon:\t    1 kB\nRssFile:\t    2 kB\nRssShmem:\t    3 kB\n";
        assert_eq!(parse(status), Some([1024, 2048, 3072]));
        assert_eq!(parse(b"Name:\tzombie\n"), None);
    }
}
