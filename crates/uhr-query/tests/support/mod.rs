//! Small recordings whose truth is known: what is planted here is what questions must find.
#![allow(dead_code, reason = "each test file uses the part that it needs")]
#![allow(unreachable_pub, reason = "a module of several test binaries")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use uhr_model::{FrameMode, Interrupt, ModuleKind, Region, StackEnding, Unsymbolized, WaitKind};
use uhr_query::{GroupBy, Profile, QueryError, Question, query};
use uhr_recording::tables::{
    FaultRow, FrameRow, LocationRow, MappingNameRow, ModuleRow, OffCpuRow, ProcessRow, ResidentRow,
    SampleRow, StackRow, ThreadRow, WakerRow,
};
use uhr_recording::{
    Clock, Finalized, Host, Manifest, Recording, RecordingWriter, Settings, State, Window, finalize,
};

/// A millisecond.
pub const MS: u64 = 1_000_000;
/// When planted recordings begin.
pub const START: u64 = 5_000 * MS;

/// A recording being planted. Times are milliseconds from its start; a CPU sample stands for one.
pub struct Planted {
    folder: TempDir,
    writer: RecordingWriter,
    pub manifest: Manifest,
    pub threads: Vec<ThreadRow>,
    processes: Vec<ProcessRow>,
    modules: Vec<String>,
    frames: HashMap<String, u32>,
    stacks: HashMap<(u32, u32), u32>,
    locations: Vec<LocationRow>,
    /// Time of each thread that stands without a sample.
    exact_ns: Vec<u64>,
    /// Rows of wakers so far.
    wakers: u32,
    mapping_names: u32,
}

impl Planted {
    /// A recording of `length_ms`.
    pub fn new(length_ms: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings {
            sampler: "perf".into(),
            frequency_asked_hz: 1000,
            frequency_hz: 1000,
            kernel_visible: true,
            wait_stacks: "switch".into(),
            ..Settings::default()
        };
        let host = Host { cpus: 2, memory_bytes: 8 << 30, ..Host::default() };
        let clock = Clock { monotonic_ns: START, realtime_ns: 1_794_000_896_000 * MS };
        let mut manifest = Manifest::new(settings, host, clock);
        manifest.state = State::Captured;
        manifest.id = "planted".into();
        manifest.window = Window { start_ns: START, end_ns: START + length_ms * MS };
        let mut writer = RecordingWriter::create(&folder.path().join("rec"), &manifest).unwrap();
        writer.push_stack(StackRow { id: 0, parent: None, frame: None });
        Self {
            folder,
            writer,
            manifest,
            threads: Vec::new(),
            processes: Vec::new(),
            modules: Vec::new(),
            frames: HashMap::new(),
            stacks: HashMap::new(),
            locations: Vec::new(),
            exact_ns: Vec::new(),
            wakers: 0,
            mapping_names: 0,
        }
    }

    pub fn process(&mut self, name: &str, pid: u32) -> u32 {
        let id = self.processes.len() as u32;
        self.processes.push(ProcessRow {
            id,
            pid,
            inner_pid: None,
            parent: None,
            name: name.into(),
            executable: Some(format!("/usr/bin/{name}")),
            start_ns: START,
            end_ns: None,
            cgroup: None,
            container: None,
            pod: None,
        });
        id
    }

    pub fn process_row(&mut self, process: u32) -> &mut ProcessRow {
        &mut self.processes[process as usize]
    }

    pub fn thread(&mut self, process: u32, name: &str, tid: u32) -> u32 {
        let id = self.threads.len() as u32;
        self.threads.push(ThreadRow {
            id,
            process,
            tid,
            name: name.into(),
            start_ns: START,
            end_ns: None,
            on_cpu_ns: 0,
            samples: 0,
            pool: id,
            switches: 0,
            run_delay_ns: None,
        });
        self.exact_ns.push(0);
        id
    }

    fn module(&mut self, name: &str) -> u32 {
        if let Some(at) = self.modules.iter().position(|one| one == name) {
            return at as u32;
        }
        let id = self.modules.len() as u32;
        // `lib.so#2` is a second build of `lib.so`.
        let (path, build) = name.split_once('#').unwrap_or((name, "1"));
        let kind = if name == "[kernel]" { ModuleKind::Kernel } else { ModuleKind::Elf };
        let path = if name.starts_with('[') { path.to_owned() } else { format!("/usr/lib/{path}") };
        let build_id = Some(format!("{build:0>40}"));
        self.writer.push_module(ModuleRow {
            id,
            kind: kind.code(),
            path,
            build_id,
            process: None,
            symbols: None,
        });
        self.modules.push(name.into());
        id
    }

    /// A frame from its description: `module!outer+inner@file:line`. The module is `app` where none is given; functions
    /// behind a `+` are inlined into the one before; `?40` has no name and the address 0x40, `?40^30` besides a known
    /// start; a module `kernel` is the kernel; `nowhere` is no mapping.
    fn frame(&mut self, text: &str) -> u32 {
        if let Some(&id) = self.frames.get(text) {
            return id;
        }
        let id = self.frames.len() as u32;
        let (module, rest) = text.split_once('!').unwrap_or(("app", text));
        let (names, place) = rest.split_once('@').map_or((rest, None), |(names, place)| (names, Some(place)));
        let mode = if module == "kernel" { FrameMode::Kernel } else { FrameMode::User };
        let module = match module {
            "nowhere" => None,
            "kernel" => Some(self.module("[kernel]")),
            module => Some(self.module(module)),
        };
        let mut address = 0x1000 + u64::from(id) * 16;
        let mut start = None;
        if let Some(hex) = names.strip_prefix('?') {
            let (at, begin) = hex.split_once('^').map_or((hex, None), |(at, begin)| (at, Some(begin)));
            address = u64::from_str_radix(at, 16).unwrap();
            start = begin.map(|begin| u64::from_str_radix(begin, 16).unwrap());
        }
        for (depth, name) in names.split('+').rev().enumerate() {
            let named = !name.starts_with('?');
            let (file, line) = place.map_or((None, None), |place| {
                let (file, line) = place.split_once(':').unwrap();
                (Some(file.to_owned()), Some(line.parse().unwrap()))
            });
            self.locations.push(LocationRow {
                frame: id,
                depth: depth as u32,
                function: named.then(|| name.to_owned()),
                file,
                line,
                function_start: start,
                mode: None,
                reason: (!named).then(|| Unsymbolized::NoSymbol.code()),
            });
        }
        self.writer.push_frame(FrameRow { id, mode: mode.code(), module, address, is_return: false });
        self.frames.insert(text.into(), id);
        id
    }

    /// The stack of these frames, the outermost first.
    pub fn stack(&mut self, frames: &[&str]) -> u32 {
        let mut node = 0;
        for text in frames {
            let frame = self.frame(text);
            let next = self.stacks.len() as u32 + 1;
            let known = self.stacks.insert((node, frame), 0);
            let id = known.unwrap_or(next);
            self.stacks.insert((node, frame), id);
            if known.is_none() {
                self.writer.push_stack(StackRow { id, parent: Some(node), frame: Some(frame) });
            }
            node = id;
        }
        node
    }

    pub fn sample(&mut self, at_ms: u64, thread: u32, frames: &[&str]) {
        self.sample_ending(at_ms, thread, frames, StackEnding::Complete);
    }

    pub fn sample_ending(&mut self, at_ms: u64, thread: u32, frames: &[&str], ending: StackEnding) {
        let stack = self.stack(frames);
        let row = &mut self.threads[thread as usize];
        row.samples += 1;
        row.on_cpu_ns += MS;
        self.push_sample(at_ms, thread, stack, MS, ending);
    }

    /// Exact time that no sample stands for.
    pub fn without_sample(&mut self, at_ms: u64, thread: u32, time_ns: u64, ending: StackEnding) {
        self.threads[thread as usize].on_cpu_ns += time_ns;
        self.exact_ns[thread as usize] += time_ns;
        self.push_sample(at_ms, thread, 0, time_ns, ending);
    }

    fn push_sample(&mut self, at_ms: u64, thread: u32, stack: u32, weight_ns: u64, ending: StackEnding) {
        let time_ns = START + at_ms * MS;
        self.writer.push_sample(SampleRow {
            time_ns,
            thread,
            cpu: 0,
            stack,
            weight_ns,
            ending: ending.code(),
            syscall: None,
        });
    }

    /// A wait, or `runnable` time, from and to these milliseconds.
    pub fn off_cpu(
        &mut self,
        thread: u32,
        frames: &[&str],
        (from_ms, to_ms): (u64, u64),
        wait: WaitKind,
        runnable: bool,
    ) {
        let row = self.wait_row(thread, frames, (from_ms, to_ms));
        let syscall = (wait == WaitKind::Sleep).then_some(230);
        self.off_cpu_row(OffCpuRow { runnable, wait: wait.code(), syscall, ..row });
    }

    /// A wait for a lock, ended by nobody known.
    fn wait_row(&mut self, thread: u32, frames: &[&str], (from_ms, to_ms): (u64, u64)) -> OffCpuRow {
        let ending = if frames.is_empty() { StackEnding::NotSampled } else { StackEnding::Complete };
        OffCpuRow {
            start_ns: START + from_ms * MS,
            end_ns: START + to_ms * MS,
            duration_ns: (to_ms - from_ms) * MS,
            weight_ns: (to_ms - from_ms) * MS,
            count: 1,
            thread,
            stack: self.stack(frames),
            ending: ending.code(),
            runnable: false,
            wait: WaitKind::Lock.code(),
            syscall: Some(202),
            waker: 0,
            waker_stack: 0,
        }
    }

    /// A thread as a waker, or `None`: what is not known. `woken_by` is the waker that had ended its own last wait.
    pub fn waker(&mut self, woken_by: Option<u32>, thread: Option<u32>) -> u32 {
        let row = WakerRow { woken_by, thread, ..WakerRow::NOBODY };
        self.push_waker(row)
    }

    /// A thread that was not recorded, as a waker.
    pub fn strange_waker(&mut self, woken_by: Option<u32>, name: &str, tid: u32) -> u32 {
        let row = WakerRow {
            woken_by,
            pid: Some(tid),
            tid: Some(tid),
            name: Some(name.into()),
            ..WakerRow::NOBODY
        };
        self.push_waker(row)
    }

    /// An interrupt as a waker.
    pub fn interrupt(&mut self, kind: Interrupt) -> u32 {
        self.push_waker(WakerRow { interrupt: Some(kind.code()), ..WakerRow::NOBODY })
    }

    fn push_waker(&mut self, row: WakerRow) -> u32 {
        if self.wakers == 0 {
            self.writer.push_waker(WakerRow::NOBODY);
            self.wakers = 1;
        }
        let id = self.wakers;
        self.writer.push_waker(WakerRow { id, ..row });
        self.wakers += 1;
        id
    }

    /// A wait for a lock that a waker ended, from and to these milliseconds, while the waker was in `waker_frames`.
    pub fn woken(
        &mut self,
        thread: u32,
        frames: &[&str],
        (from_ms, to_ms): (u64, u64),
        waker: u32,
        waker_frames: &[&str],
    ) {
        let row = self.wait_row(thread, frames, (from_ms, to_ms));
        let waker_stack = self.stack(waker_frames);
        self.off_cpu_row(OffCpuRow { waker, waker_stack, ..row });
    }

    /// A CPU sample on this CPU and in this system call.
    pub fn sample_on(&mut self, at_ms: u64, thread: u32, frames: &[&str], cpu: u16, syscall: Option<u32>) {
        let stack = self.stack(frames);
        let row = &mut self.threads[thread as usize];
        row.samples += 1;
        row.on_cpu_ns += MS;
        self.writer.push_sample(SampleRow {
            time_ns: START + at_ms * MS,
            thread,
            cpu,
            stack,
            weight_ns: MS,
            ending: StackEnding::Complete.code(),
            syscall,
        });
    }

    pub fn off_cpu_row(&mut self, row: OffCpuRow) {
        self.writer.push_off_cpu(row);
    }

    /// A name of a mapping.
    pub fn mapping_name(&mut self, name: &str) -> u32 {
        self.mapping_names += 1;
        let id = self.mapping_names - 1;
        self.writer.push_mapping_name(MappingNameRow { id, name: name.to_owned() });
        id
    }

    /// A page-fault sample; the kernel counted as many as the samples weigh.
    pub fn fault(&mut self, at_ms: u64, thread: u32, frames: &[&str], region: Region, weight: u64) {
        self.fault_in(at_ms, thread, frames, (region, None), weight);
    }

    /// The same, in a mapping with this name.
    pub fn fault_in(
        &mut self,
        at_ms: u64,
        thread: u32,
        frames: &[&str],
        (region, mapping): (Region, Option<u32>),
        weight: u64,
    ) {
        let stack = self.stack(frames);
        self.manifest.ledger.faults.expected += weight;
        self.manifest.ledger.faults.captured += 1;
        self.writer.push_fault(FaultRow {
            time_ns: START + at_ms * MS,
            thread,
            stack,
            ending: StackEnding::Complete.code(),
            address: 0x7000,
            region: region.code(),
            mapping,
            weight,
            major: false,
            page: 1,
        });
    }

    pub fn resident(&mut self, at_ms: u64, process: u32, bytes: u64) {
        let time_ns = START + at_ms * MS;
        self.writer.push_resident(ResidentRow {
            time_ns,
            process,
            anonymous_bytes: bytes - 3,
            file_bytes: 2,
            shared_bytes: 1,
        });
    }

    /// Ends the capture, without the finished form.
    pub fn captured(mut self) -> Captured {
        for process in self.processes.drain(..) {
            self.writer.push_process(process);
        }
        let count: u64 = self.threads.iter().map(|thread| thread.samples).sum();
        for thread in self.threads.drain(..) {
            self.writer.push_thread(thread);
        }
        if self.manifest.ledger.cpu.expected == 0 {
            self.manifest.ledger.cpu.expected = count;
            self.manifest.ledger.cpu.captured = count;
        }
        let path = self.writer.folder().to_owned();
        self.writer.finish(&self.manifest).unwrap();
        Captured { folder: self.folder, path, locations: self.locations }
    }

    /// Ends and finishes it, and loads it.
    pub fn finish(self) -> Loaded {
        self.captured().finish()
    }
}

/// A recording whose names are not in it yet.
pub struct Captured {
    pub folder: TempDir,
    pub path: PathBuf,
    pub locations: Vec<LocationRow>,
}

impl Captured {
    pub fn names(&self) -> Finalized {
        Finalized { locations: self.locations.clone(), ..Finalized::default() }
    }

    pub fn profile(&self) -> Profile {
        Profile::load(&Recording::open(&self.path).unwrap(), Some(self.names())).unwrap()
    }

    pub fn finish(self) -> Loaded {
        finalize(&Recording::open(&self.path).unwrap(), self.names()).unwrap();
        let profile = Profile::load(&Recording::open(&self.path).unwrap(), None).unwrap();
        Loaded { folder: self.folder, path: self.path, profile }
    }
}

/// A finished recording, and its profile.
pub struct Loaded {
    pub folder: TempDir,
    pub path: PathBuf,
    pub profile: Profile,
}

/// What `query` answers to a question with these changes.
pub fn ask(
    profile: &Profile,
    group: &str,
    change: impl FnOnce(&mut Question),
) -> Result<serde_json::Value, QueryError> {
    let mut question = Question::default();
    change(&mut question);
    query(profile, &question, &GroupBy::parse(group)?).map(|answer| valid(&answer))
}

/// The same of a question that has an answer.
pub fn answer(profile: &Profile, group: &str, change: impl FnOnce(&mut Question)) -> serde_json::Value {
    ask(profile, group, change).unwrap()
}

/// The value as JSON, held against its published schema.
pub fn valid(answer: &impl uhr_query::answers::Answer) -> serde_json::Value {
    fn name<A: uhr_query::answers::Answer>(_: &A) -> &'static str {
        A::SCHEMA
    }
    // Compiling a schema takes longer than most questions.
    static VALIDATORS: Mutex<BTreeMap<&str, Arc<jsonschema::Validator>>> = Mutex::new(BTreeMap::new());
    let compile = |name| {
        let schema = uhr_query::answers::schema(name).unwrap();
        Arc::new(jsonschema::validator_for(&schema).unwrap())
    };
    let name = name(answer);
    let validator = VALIDATORS.lock().unwrap().entry(name).or_insert_with(|| compile(name)).clone();
    let value = serde_json::to_value(answer).unwrap();
    let errors: Vec<String> = validator
        .iter_errors(&value)
        .map(|error| format!("{} at {}", error, error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{errors:#?}\n{value:#}");
    assert_eq!(value["schema"], name);
    value
}
