//! Compiles and runs the target program, and collects what a session brings.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use uhr_collect::perf::{Access, Decoder, EventCounts, Granted, Merger, Record, Session, Settings, Targets};

pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

/// Whether this host grants perf events at all. Says loudly if not.
pub(crate) fn can_record() -> bool {
    let access = Access::probe();
    if let Err(refusal) = &access.own_processes {
        eprintln!("SKIPPED: {refusal}");
    }
    access.own_processes.is_ok()
}

/// A program that waits to be told to begin.
pub(crate) struct Target {
    child: Child,
    said: BufReader<ChildStdout>,
    lines: Vec<String>,
    folder: TempDir,
}

/// All that a session brought, in the order of time.
pub(crate) struct Recorded {
    pub(crate) pid: u32,
    pub(crate) program: PathBuf,
    pub(crate) granted: Granted,
    pub(crate) counts: Vec<EventCounts>,
    bytes: Vec<Vec<u8>>,
    decoder: Decoder,
    lines: Vec<String>,
    _folder: TempDir,
}

impl Recorded {
    pub(crate) fn records(&self) -> Vec<Record<'_>> {
        let records: Vec<_> = self.bytes.iter().map(|bytes| self.decoder.parse(bytes).unwrap()).collect();
        assert!(records.is_sorted_by_key(|record| record.stamp.time_ns));
        records
    }

    /// The number that the program printed after `word`.
    pub(crate) fn said(&self, word: &str) -> u64 {
        let line = self.lines.iter().find_map(|line| line.strip_prefix(word)).unwrap();
        line.trim().parse().unwrap()
    }
}

impl Target {
    /// Compiles the program and starts a shell that executes it once it is told to go. `None`: this host grants no
    /// perf events.
    pub(crate) fn start(arguments: &str) -> Option<Self> {
        if !can_record() {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/perf_live/target.c");
        let program = folder.path().join("target");
        let compiled = Command::new("gcc")
            .args([
                "-O2",
                "-fno-omit-frame-pointer",
                "-mno-omit-leaf-frame-pointer",
                "-fno-optimize-sibling-calls",
                "-no-pie",
                "-pthread",
            ])
            .args(["-Wl,--build-id"])
            .arg("-o")
            .args([&program, &source])
            .status()
            .unwrap();
        assert!(compiled.success());
        let mut child = Command::new("/bin/sh")
            .args(["-c", "read go; exec \"$0\" \"$@\""])
            .arg(&program)
            .args(arguments.split(' '))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Some(Self { child, said, lines: Vec::new(), folder })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn go(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn wait_for(&mut self, wanted: &str) {
        let mut line = String::new();
        while line.trim() != wanted {
            line.clear();
            assert_ne!(self.said.read_line(&mut line).unwrap(), 0, "the program ended");
            self.lines.push(line.trim().to_owned());
        }
    }

    pub(crate) fn threads(&self) -> Vec<u32> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        tasks.map(|task| task.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect()
    }

    pub(crate) fn follow(self, session: &mut Session) -> Recorded {
        self.follow_with(session, |_, _| {})
    }

    /// Reads the session until the program has ended. `on_record` sees each record as soon as it was read.
    pub(crate) fn follow_with(
        mut self,
        session: &mut Session,
        mut on_record: impl FnMut(&mut Session, &Record<'_>),
    ) -> Recorded {
        let decoder = session.decoder();
        let mut merger = Merger::new(decoder.clone(), 256 << 20);
        let (mut bytes, mut before_ns, mut is_last) = (Vec::new(), 0, false);
        loop {
            let mut fresh = Vec::new();
            let drained = session.drain(&mut |ring, record| fresh.push((ring, record.to_vec())));
            assert_eq!(drained.corrupt_bytes, 0);
            for (ring, record) in &fresh {
                push(&mut merger, *ring, record);
                on_record(session, &decoder.parse(record).unwrap());
            }
            merger.release(before_ns, &mut |_, record| bytes.push(record.to_vec()));
            before_ns = drained.started_ns;
            if is_last {
                break;
            }
            session.wait(Duration::from_millis(20)).unwrap();
            is_last = self.child.try_wait().unwrap().is_some();
        }
        merger.finish(&mut |_, record| bytes.push(record.to_vec()));
        assert_eq!((merger.out_of_order(), merger.forced()), (0, 0));
        self.lines.extend((&mut self.said).lines().map(Result::unwrap));
        Recorded {
            pid: self.child.id(),
            program: self.folder.path().join("target"),
            granted: session.granted().clone(),
            counts: session.counts(),
            bytes,
            decoder,
            lines: std::mem::take(&mut self.lines),
            _folder: self.folder,
        }
    }
}

/// Records a run of the target from its exec to its end.
pub(crate) fn record(arguments: &str, settings: &Settings) -> Option<Recorded> {
    let mut target = Target::start(arguments)?;
    let mut session = Session::open(Targets::Child { pid: target.pid() }, settings).unwrap();
    target.go();
    Some(target.follow(&mut session))
}

/// The functions of an ELF file by address, with their sizes, as nm tells them.
pub(crate) fn symbols(program: &Path) -> BTreeMap<u64, (u64, String)> {
    let output = Command::new("nm").args(["-S", "--defined-only"]).arg(program).output().unwrap();
    let number = |hex: &str| u64::from_str_radix(hex, 16).unwrap();
    let symbol = |line: &str| match line.split(' ').collect::<Vec<_>>()[..] {
        [start, size, "T" | "t", name] => Some((number(start), (number(size), name.to_owned()))),
        _ => None,
    };
    String::from_utf8(output.stdout).unwrap().lines().filter_map(symbol).collect()
}

/// The build id as readelf prints it.
pub(crate) fn build_id(program: &Path) -> String {
    let output = Command::new("readelf").arg("-n").arg(program).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().find_map(|line| line.trim().strip_prefix("Build ID: ")).unwrap().to_owned()
}

/// Runs this test program again, as a user without any privilege.
pub(crate) fn as_ordinary_user(arguments: &[&str]) {
    if !is_root() {
        eprintln!("SKIPPED: this is an ordinary user's run already");
        return;
    }
    // The build folder need not be readable for others.
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("tests");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let open = |path: &Path, mode| {
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    open(folder.path(), 0o755);
    open(&program, 0o755);
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"])
        .arg(&program)
        .args(arguments)
        .current_dir("/")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(!text.contains("0 passed"), "{text}");
}

/// Makes perf_event_open fail with EPERM from now on, as the default filter of containers does.
pub(crate) fn forbid_perf_events() -> io::Result<()> {
    let statement = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut program = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0), // the system call's number
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_perf_event_open as u32),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: plain numbers, and a live program of the stated length that the kernel copies.
    let failed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) != 0
    };
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Gives a record to the merger.
pub(crate) fn push(merger: &mut Merger, ring: usize, record: &[u8]) {
    merger.push(record.to_vec(), std::iter::once((ring, record.len())), |_, _| None);
}
