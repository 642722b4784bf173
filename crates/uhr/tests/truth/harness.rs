//! Builds the planted programs, runs `uhr` on them as ourselves or as an ordinary user, and reads its answers.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// No program here runs longer than a few seconds; a minute is a hang, on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// The ordinary user: `nobody`.
const NOBODY: &str = "65534";

/// Whom `uhr` runs as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Who {
    /// Whoever runs the tests.
    Us,
    /// Somebody without rights.
    Ordinary,
}

impl Who {
    /// Whether the kernel may be hidden from it.
    pub(crate) fn is_ordinary(self) -> bool {
        self == Self::Ordinary || !is_root()
    }
}

pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// Whether a program is there; says loudly if not.
pub(crate) fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let is_there = found.is_ok();
    if !is_there {
        eprintln!("SKIPPED: there is no {program} here");
    }
    is_there
}

/// Whether uhr's own programs can be loaded into the kernel; says loudly if not.
pub(crate) fn has_ebpf() -> bool {
    static REFUSED: OnceLock<Option<String>> = OnceLock::new();
    let refused = REFUSED.get_or_init(|| {
        let doctor = Command::new(env!("CARGO_BIN_EXE_uhr")).args(["doctor", "--json"]).output().unwrap();
        let answer: Value = serde_json::from_slice(&doctor.stdout).unwrap();
        let checks = answer["checks"].as_array().unwrap();
        let check = checks.iter().find(|check| check["name"] == "ebpf-sampler");
        let finding = check.map_or("", |check| check["finding"].as_str().unwrap());
        // Only what this host withholds from root is a reason; programs that do not load are a defect.
        let withheld =
            ["is missing", "is not there", "not permitted"].iter().any(|words| finding.contains(words));
        (!is_root() || withheld).then(|| finding.to_owned())
    });
    if let Some(finding) = refused {
        eprintln!("SKIPPED: eBPF is not for us here: {finding}");
    }
    refused.is_none()
}

/// Time of all CPUs that no thread's clock has, though a thread had the CPU: interrupts, and what the host took.
pub(crate) fn taken_ns() -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap();
    let ticks: Vec<f64> =
        text.lines().next().unwrap().split(' ').filter_map(|word| word.parse().ok()).collect();
    // Of irq, softirq and steal; a tick of this file is 10 ms everywhere.
    ticks[5..8].iter().sum::<f64>() * 1e7
}

/// A file of `programs/`.
pub(crate) fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/truth/programs").join(name)
}

/// The number of the line of a program that is marked `LINE name`.
pub(crate) fn line_of(program: &str, name: &str) -> u64 {
    let text = fs::read_to_string(source(program)).unwrap();
    let mark = format!("LINE {name}");
    text.lines().position(|line| line.trim_end().ends_with(&mark)).unwrap() as u64 + 1
}

/// A folder that everybody may read and write, for programs and recordings.
pub(crate) struct Place {
    folder: TempDir,
    has_older_programs: bool,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("uhr-truth-").tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
        Self { folder, has_older_programs: false }
    }

    /// The same; the eBPF sampler has the programs for kernels before 5.18 there, whatever the kernel.
    pub(crate) fn with_older_programs() -> Self {
        Self { has_older_programs: true, ..Self::new() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Compiles a C program of `programs/`, with its functions as they are written: none inlined away by tail calls.
    pub(crate) fn c(&self, program: &str, flags: &[&str]) -> PathBuf {
        let name = program.trim_end_matches(".cpp").trim_end_matches(".c");
        let compiler = if program.ends_with(".cpp") { "g++" } else { "gcc" };
        let out = self.path(name);
        let mut command = Command::new(compiler);
        command.args(["-O2", "-g", "-fno-optimize-sibling-calls", "-pthread"]).args(flags).arg("-o");
        built(command.arg(&out).arg(source(program)));
        out
    }

    /// The `uhr` that `who` can run.
    fn uhr(&self, who: Who) -> Command {
        let own = Path::new(env!("CARGO_BIN_EXE_uhr"));
        if who == Who::Us || !is_root() {
            return Command::new(own);
        }
        // The build folder may be closed to others.
        let copy = self.path("uhr");
        if !copy.exists() {
            fs::copy(own, &copy).unwrap();
        }
        let mut command = Command::new("setpriv");
        command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--"]).arg(copy);
        command
    }

    /// Starts `uhr record -o REC ARGUMENTS`.
    pub(crate) fn start(
        &self,
        who: Who,
        rec: &str,
        arguments: &[&str],
        command: &[&dyn AsRef<OsStr>],
    ) -> Running {
        let mut uhr = self.uhr(who);
        if self.has_older_programs {
            uhr.env("UHR_TEST_OLDER_PROGRAMS", "1");
        }
        uhr.arg("record").args(arguments).current_dir(self.folder.path());
        if !arguments.contains(&"-o") {
            uhr.arg("-o").arg(self.path(rec));
        }
        if !command.is_empty() {
            uhr.arg("--").args(command.iter().map(AsRef::as_ref));
        }
        Running::start(
            &mut uhr,
            self.path(rec),
            &self.path(&format!("{rec}.out")),
            &self.path(&format!("{rec}.err")),
        )
    }

    /// Records until the end.
    pub(crate) fn record(
        &self,
        who: Who,
        rec: &str,
        arguments: &[&str],
        command: &[&dyn AsRef<OsStr>],
    ) -> Recorded {
        self.start(who, rec, arguments, command).end()
    }
}

/// The programs, maps and links in the kernel that a process holds, as `bpftool` takes them: the kind and the id.
pub(crate) fn held_by(pid: u32) -> Vec<(&'static str, String)> {
    let mut held = Vec::new();
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fdinfo")) else { return held };
    for file in files.flatten() {
        let Ok(text) = fs::read_to_string(file.path()) else { continue };
        let id =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(|id| id.trim().to_owned());
        // A link says which program it runs, too.
        let kinds = [("link", "link_id:"), ("prog", "prog_id:"), ("map", "map_id:")];
        held.extend(kinds.iter().find_map(|(kind, name)| Some((*kind, id(name)?))));
    }
    held
}

/// Runs a compiler.
pub(crate) fn built(command: &mut Command) {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Sends a signal by name, as a shell does.
pub(crate) fn signal(name: &str, pid: u32) {
    let command = format!("kill -{name} {pid}");
    assert!(Command::new("sh").args(["-c", &command]).status().unwrap().success(), "{command}");
}

/// A child of any thread of a process.
pub(crate) fn child_of(pid: u32) -> Option<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let mut children =
        tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    children.find_map(|text| text.split_whitespace().next()?.parse().ok())
}

/// Asks `is_so` until it is, or fails after a minute.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A process of ours, ended with the test at the latest.
pub(crate) struct Running {
    child: Child,
    pub(crate) rec: PathBuf,
    out: PathBuf,
    err: PathBuf,
    is_over: bool,
}

impl Running {
    /// Starts a command with its output in files, so that it never waits for us.
    pub(crate) fn start(command: &mut Command, rec: PathBuf, out: &Path, err: &Path) -> Self {
        command.stdin(Stdio::null());
        command.stdout(File::create(out).unwrap()).stderr(File::create(err).unwrap());
        let child = command.spawn().unwrap();
        Self { child, rec, out: out.to_owned(), err: err.to_owned(), is_over: false }
    }

    /// Starts a program that is not uhr.
    pub(crate) fn program(place: &Place, name: &str, command: &mut Command) -> Self {
        let (out, err) = (place.path(&format!("{name}.out")), place.path(&format!("{name}.err")));
        Self::start(command, PathBuf::new(), &out, &err)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has printed so far.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.out).unwrap()
    }

    pub(crate) fn complained(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.err).unwrap()).into_owned()
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(name, self.pid());
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.wait();
    }

    fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("it ended", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        self.is_over = true;
        status.unwrap()
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Recorded {
        let status = self.wait();
        Recorded { rec: self.rec.clone(), status, stdout: self.said(), stderr: self.complained() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.is_over {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// What a run left.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) rec: PathBuf,
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Recorded {
    /// The exit status as a shell shows it.
    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap())
    }

    /// Fails unless all went well; `None`, and loudly, where this host grants no events at all.
    pub(crate) fn or_skip(self) -> Option<Self> {
        if self.code() == 125 && self.stderr.contains("perf_event_paranoid") {
            eprintln!("SKIPPED: {}", self.stderr);
            return None;
        }
        assert_eq!(self.code(), 0, "{}", self.stderr);
        Some(self)
    }

    /// What the program said about itself: the last line that it printed.
    pub(crate) fn truth(&self) -> Value {
        let last = self.stdout.lines().last().unwrap_or_else(|| panic!("it said nothing: {}", self.stderr));
        serde_json::from_str(last).unwrap()
    }

    /// Asks a question that has an answer.
    pub(crate) fn ask(&self, question: &str) -> Value {
        let (code, answer) = ask(&self.rec, question);
        assert_eq!(code, 0, "{question}: {answer}");
        assert_eq!(answer["ok"], true, "{question}: {answer}");
        answer
    }
}

/// Asks `uhr QUESTION` about a recording: `query --group-by function`. Gives the exit status and the answer.
pub(crate) fn ask(rec: &Path, question: &str) -> (i32, Value) {
    let mut words = question.split(' ');
    let verb = words.next().unwrap();
    let mut uhr = Command::new(env!("CARGO_BIN_EXE_uhr"));
    let done = uhr.arg(verb).arg(rec).arg("--json").args(words).output().unwrap();
    let text = String::from_utf8(done.stdout).unwrap();
    let answer = serde_json::from_str(&text).unwrap_or_else(|error| {
        panic!("{question}: {error}: {text:?} {}", String::from_utf8_lossy(&done.stderr))
    });
    (done.status.code().unwrap(), answer)
}

/// The rows of an answer.
pub(crate) fn rows(answer: &Value) -> &[Value] {
    answer["rows"].as_array().unwrap()
}

/// The row whose key has this value.
pub(crate) fn row<'a>(answer: &'a Value, dimension: &str, value: &str) -> &'a Value {
    find(answer, dimension, value).unwrap_or_else(|| panic!("no {dimension} {value} in {answer:#}"))
}

/// The same, where there may be none. Processes and threads are found by name.
pub(crate) fn find<'a>(answer: &'a Value, dimension: &str, value: &str) -> Option<&'a Value> {
    rows(answer).iter().find(|row| {
        let key = &row["key"][dimension];
        key.as_str().or_else(|| key["name"].as_str()) == Some(value)
    })
}

/// A number of a program's truth.
pub(crate) fn number(truth: &Value, name: &str) -> f64 {
    truth[name].as_f64().unwrap_or_else(|| panic!("no {name} in {truth}"))
}

/// Fails unless `seen` is within `tolerance` (a share) of `truth`.
pub(crate) fn assert_near(what: &str, seen: f64, truth: f64, tolerance: f64) {
    let off = (seen - truth) / truth;
    assert!(off.abs() <= tolerance, "{what}: {seen} is {:+.2} % off the truth {truth}", off * 100.0);
}

/// Fails unless `seen` is the CPU time that a thread's clock has told, within 8 % (a few ticks of the sampling clock), or
/// more by what was taken from the CPUs meanwhile.
pub(crate) fn assert_on_cpu(what: &str, seen: f64, truth: f64, taken_ns: f64) {
    let (least, most) = (truth * 0.92, truth * 1.08 + taken_ns);
    assert!((least..=most).contains(&seen), "{what}: {seen} ns on a CPU, and it was {least} to {most}");
}
