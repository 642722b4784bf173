//! Processes and threads that come: they are there at the start, are made, or execute another program.

use uhr_recording::RecordingWriter;
use uhr_recording::tables::{ProcessRow, ThreadRow};

use super::{Process, Tasks, Thread};
use crate::address_space::AddressSpace;
use crate::anonymous_names::NamesRead;
use crate::cgroup::membership::{self, Membership};
use crate::procfs;
use crate::sums::ThreadSums;
use crate::waits::ThreadTime;
use uhr_unwind::ProcessUnwinder;

impl Tasks {
    /// Takes in a process that lives already, with those of its threads that have events. What began meanwhile comes
    /// with a FORK record.
    pub(crate) fn attach(&mut self, pid: u32, tids: &[u32], now_ns: u64, writer: &mut RecordingWriter) {
        self.process(pid, now_ns, writer);
        for &tid in tids {
            let running = procfs::stat(pid, tid).map(|stat| stat.state == b'R');
            self.thread_in_state(pid, tid, now_ns, running.filter(|running| !running), writer);
        }
    }

    /// Takes in a child of ours that waits to execute its program. Its first exec gives this row its name.
    pub(crate) fn expect_exec(&mut self, pid: u32, now_ns: u64, writer: &mut RecordingWriter) {
        self.process(pid, now_ns, writer).before_exec = true;
    }

    /// The process that has this pid now.
    pub(crate) fn process(&mut self, pid: u32, now_ns: u64, writer: &mut RecordingWriter) -> &mut Process {
        let count = &mut self.process_count;
        self.processes.entry(pid).or_insert_with(|| {
            let mut row = ProcessRow {
                id: *count,
                pid,
                inner_pid: procfs::inner_pid(pid),
                parent: None,
                name: procfs::thread_name(pid, pid).unwrap_or_else(|| "[unknown]".to_owned()),
                executable: procfs::executable(pid),
                start_ns: now_ns,
                end_ns: None,
                cgroup: None,
                container: None,
                pod: None,
            };
            membership::of_process(pid).fill(&mut row);
            *count += 1;
            writer.push_process(row.clone());
            Process {
                row,
                space: AddressSpace::default(),
                unwinder: ProcessUnwinder::new(),
                maps_read_ns: None,
                names_read: NamesRead::default(),
                replaced_ns: 0,
                living: 0,
                before_exec: false,
            }
        })
    }

    /// The thread that has this tid now.
    pub(crate) fn thread(
        &mut self,
        pid: u32,
        tid: u32,
        now_ns: u64,
        writer: &mut RecordingWriter,
    ) -> &mut Thread {
        let since_ns =
            if self.threads.contains_key(&tid) { now_ns } else { self.machine_since_ns.unwrap_or(now_ns) };
        self.thread_in_state(pid, tid, since_ns, None, writer)
    }

    fn thread_in_state(
        &mut self,
        pid: u32,
        tid: u32,
        now_ns: u64,
        running: Option<bool>,
        writer: &mut RecordingWriter,
    ) -> &mut Thread {
        self.named_thread((pid, tid), None, now_ns, running, writer)
    }

    /// The thread that has this tid now; if it is new, under this name, or the one that it has by now.
    fn named_thread(
        &mut self,
        (pid, tid): (u32, u32),
        name: Option<String>,
        now_ns: u64,
        running: Option<bool>,
        writer: &mut RecordingWriter,
    ) -> &mut Thread {
        // A tid that now belongs to another process is a new thread: its old one ended unseen.
        if self.threads.get(&tid).is_some_and(|thread| thread.pid != pid) {
            self.end_thread(tid, now_ns, writer);
        }
        if !self.threads.contains_key(&tid) {
            // Under its maker's name only a new thread comes.
            let is_new = name.is_some();
            let process = self.process(pid, now_ns, writer);
            process.living += 1;
            let (process, process_name) = (process.row.id, process.row.name.clone());
            let row = ThreadRow {
                id: self.thread_count,
                process,
                tid,
                name: name.or_else(|| procfs::thread_name(pid, tid)).unwrap_or(process_name),
                start_ns: now_ns,
                end_ns: None,
                on_cpu_ns: 0,
                samples: 0,
                pool: self.thread_count,
                switches: 0,
                run_delay_ns: None,
            };
            self.thread_count += 1;
            writer.push_thread(row.clone());
            let time = ThreadTime::new(row.id, now_ns, running);
            let sums = self.sums_of.map(|_| ThreadSums::new(row.id, now_ns, is_new));
            let schedstat_at_start = if sums.is_some() { None } else { procfs::schedstat(pid, tid) };
            let thread =
                Thread { row, pid, time, sums, schedstat_at_start, exited_ns: None, totals_only: None };
            self.threads.insert(tid, thread);
        }
        match self.threads.get_mut(&tid) {
            Some(thread) => thread,
            None => unreachable!("it was inserted above"),
        }
    }

    /// A thread or process began.
    pub(crate) fn fork(
        &mut self,
        (pid, tid): (u32, u32),
        (parent_pid, parent_tid): (u32, u32),
        now_ns: u64,
        writer: &mut RecordingWriter,
    ) {
        self.ended.remove(&tid);
        if pid != parent_pid && tid == pid {
            self.end_process(pid, now_ns, writer);
            let parent = self.process(parent_pid, now_ns, writer);
            let (space, unwinder) = (parent.space.clone(), parent.unwinder.of_child());
            let mut row = parent.row.clone();
            let maps_read_ns = parent.maps_read_ns;
            row.parent = Some(row.id);
            row.pid = pid;
            row.id = self.process_count;
            row.start_ns = now_ns;
            row.inner_pid = procfs::inner_pid(pid);
            self.process_count += 1;
            writer.push_process(row.clone());
            let names_read = NamesRead::default();
            let process = Process {
                row,
                space,
                unwinder,
                maps_read_ns,
                names_read,
                replaced_ns: 0,
                living: 0,
                before_exec: false,
            };
            self.processes.insert(pid, process);
        }
        self.end_thread(tid, now_ns, writer);
        // By the time that this record is read it may have executed another program; it began under its maker's name.
        let name = self.threads.get(&parent_tid).map(|parent| parent.row.name.clone());
        // It has not run yet; its first switch record says when it does.
        self.named_thread((pid, tid), name, now_ns, Some(false), writer);
    }

    /// A process executed a new program: a new row under the same pid.
    pub(crate) fn exec(
        &mut self,
        pid: u32,
        tid: u32,
        name: String,
        now_ns: u64,
        writer: &mut RecordingWriter,
    ) {
        // A thread that is not the first and executes a program takes the tid of the first, which has just ended.
        self.ended.remove(&tid);
        let executable = procfs::executable(pid);
        if let Some(process) = self.processes.get_mut(&pid).filter(|process| process.before_exec) {
            process.before_exec = false;
            process.row.name.clone_from(&name);
            process.row.executable = executable;
            process.row.start_ns = now_ns;
            membership::of_process(pid).fill(&mut process.row);
            process.space = AddressSpace::default();
            process.unwinder = ProcessUnwinder::new();
            writer.push_process(process.row.clone());
            let thread = self.thread_in_state(pid, tid, now_ns, Some(true), writer);
            thread.row.name = name;
            return;
        }
        let before = self.processes.get(&pid).map(|process| process.row.clone());
        let threads: Vec<u32> =
            self.threads.values().filter(|of| of.pid == pid).map(|of| of.row.tid).collect();
        threads.into_iter().for_each(|tid| self.end_thread(tid, now_ns, writer));
        self.end_process(pid, now_ns, writer);
        let process = self.process(pid, now_ns, writer);
        process.row.name.clone_from(&name);
        process.row.executable = executable;
        if let Some(before) = before {
            process.row.parent = Some(before.id);
            if process.row.cgroup.is_none() {
                Membership::of_row(before).fill(&mut process.row);
            }
        }
        writer.push_process(process.row.clone());
        self.thread_in_state(pid, tid, now_ns, Some(true), writer).row.name = name;
    }

    /// A thread has a new name. The first thread's is the process's too.
    pub(crate) fn rename(
        &mut self,
        pid: u32,
        tid: u32,
        name: String,
        now_ns: u64,
        writer: &mut RecordingWriter,
    ) {
        let thread = self.thread(pid, tid, now_ns, writer);
        thread.row.name.clone_from(&name);
        writer.push_thread(thread.row.clone());
        if pid == tid {
            let process = self.process(pid, now_ns, writer);
            process.row.name = name;
            writer.push_process(process.row.clone());
        }
    }
}
