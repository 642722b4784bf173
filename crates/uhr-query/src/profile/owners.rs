//! Who ran: processes and threads.

use rustc_hash::FxHashMap;
use uhr_model::Dimension;
use uhr_recording::Recording;
use uhr_recording::tables::{ProcessRow, ThreadRow};

use crate::QueryError;
use crate::answers::{KeyValue, rounded};
use crate::names::shown;

/// Processes and threads of a recording.
#[derive(Debug)]
pub(crate) struct Owners {
    pub(crate) processes: Vec<ProcessRow>,
    pub(crate) threads: Vec<ThreadRow>,
    /// For each thread, the first one of its process.
    pub(crate) first_of_process: Vec<u32>,
    start_ns: u64,
    /// How many rows there are of each pid and tid: a pid is reused, and has a row for each program it executed.
    rows_of_pid: FxHashMap<u32, u32>,
    rows_of_tid: FxHashMap<u32, u32>,
}

impl Owners {
    pub(super) fn load(recording: &Recording) -> Result<Self, QueryError> {
        let (processes, threads) = (recording.processes()?, recording.threads()?);
        let (mut rows_of_pid, mut rows_of_tid) = (FxHashMap::default(), FxHashMap::default());
        for process in &processes {
            *rows_of_pid.entry(process.pid).or_insert(0) += 1;
        }
        let mut first: Vec<Option<u32>> = vec![None; processes.len()];
        let mut first_of_process = Vec::with_capacity(threads.len());
        for thread in &threads {
            if thread.process as usize >= processes.len() {
                return Err(QueryError::Damaged(format!("thread {} has no process", thread.id)));
            }
            *rows_of_tid.entry(thread.tid).or_insert(0) += 1;
            let next = first_of_process.len() as u32;
            first_of_process.push(*first[thread.process as usize].get_or_insert(next));
        }
        let start_ns = recording.manifest.window.start_ns;
        Ok(Self { processes, threads, first_of_process, start_ns, rows_of_pid, rows_of_tid })
    }

    /// The process of a thread.
    pub(crate) fn process_of(&self, thread: usize) -> &ProcessRow {
        &self.processes[self.threads[thread].process as usize]
    }

    /// What the process of a thread is in: its cgroup, container or pod.
    pub(crate) fn place_of(&self, thread: usize, dimension: Dimension) -> Option<&str> {
        let process = self.process_of(thread);
        match dimension {
            Dimension::Cgroup => process.cgroup.as_deref(),
            Dimension::Container => process.container.as_deref(),
            Dimension::Pod => process.pod.as_deref(),
            _ => None,
        }
    }

    /// A process as a key.
    pub(crate) fn process_key(&self, process: usize, whole_names: bool) -> KeyValue {
        let row = &self.processes[process];
        KeyValue::Process {
            name: shown(&row.name, whole_names).into_owned(),
            pid: row.pid,
            inner_pid: row.inner_pid,
            start_s: self.start_if(self.rows_of_pid.get(&row.pid), row.start_ns),
        }
    }

    /// A thread as a key.
    pub(crate) fn thread_key(&self, thread: usize, whole_names: bool) -> KeyValue {
        let row = &self.threads[thread];
        KeyValue::Thread {
            name: shown(&row.name, whole_names).into_owned(),
            tid: row.tid,
            pid: self.process_of(thread).pid,
            start_s: self.start_if(self.rows_of_tid.get(&row.tid), row.start_ns),
        }
    }

    fn start_if(&self, rows: Option<&u32>, start_ns: u64) -> Option<f64> {
        (rows.copied().unwrap_or(0) > 1).then(|| rounded(start_ns.saturating_sub(self.start_ns) as f64 / 1e9))
    }
}
