//! Perf events on this machine's kernel, against what the recorded programs say about themselves and what `nm` and
//! `readelf` say about their files. Runs as root and, from `everything_again_as_an_ordinary_user`, without.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "these are tests, helpers of tests among them")]

mod harness;
mod ladder;
mod limits;

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use harness::{Recorded, Target, as_ordinary_user, can_record, is_root, push, record, symbols};
use uhr_collect::perf::{
    Access, Attached, Body, EventCounts, EventKind, FileIdentity, Limitation, Merger, OpenError, Record,
    Refusal, RingLayout, Sample, Session, Settings, Targets, UserStack,
};

fn frame_pointers() -> Settings {
    Settings { user_stack: UserStack::FramePointers, ..Settings::default() }
}

fn assert_near(what: &str, seen: f64, truth: f64, tolerance: f64) {
    let off = (seen - truth).abs() / truth;
    assert!(off <= tolerance, "{what}: {seen} instead of {truth}, {:.1} % off", off * 100.0);
}

fn counts_of(recorded: &Recorded, kind: EventKind) -> EventCounts {
    *recorded.counts.iter().find(|row| row.kind == kind).unwrap()
}

fn samples<'a>(records: &'a [Record<'a>], kind: EventKind) -> Vec<(u32, &'a Sample<'a>)> {
    let of_kind = |record: &'a Record<'a>| match &record.body {
        Body::Sample(sample) if sample.kind == kind => Some((record.stamp.tid, sample)),
        _ => None,
    };
    records.iter().filter_map(of_kind).collect()
}

#[test]
fn cpu_samples_add_up_to_the_cpu_time_of_the_program() {
    let Some(recorded) = record("burn 1500", &frame_pointers()) else { return };
    let records = recorded.records();
    let samples = samples(&records, EventKind::Cpu);
    let sampled: u64 = samples.iter().map(|(_, sample)| sample.period).sum();
    let truth = recorded.said("cpu") as f64;
    assert_near("sampled CPU time", sampled as f64, truth, 0.05);
    let counts = counts_of(&recorded, EventKind::Cpu);
    assert_near("counted CPU time", counts.value as f64, truth, 0.03);
    assert_eq!(counts.lost, Some(0));
}

#[test]
fn user_chains_are_the_call_stack() {
    let Some(recorded) = record("burn 500", &frame_pointers()) else { return };
    let functions = symbols(&recorded.program);
    let name = |address: u64| {
        let (start, (size, name)) = functions.range(..=address).next_back()?;
        (address < start + size).then_some(name.as_str())
    };
    let records = recorded.records();
    let in_leaf: Vec<_> = samples(&records, EventKind::Cpu)
        .into_iter()
        .filter(|(_, sample)| !sample.in_kernel && name(sample.ip) == Some("burn_leaf"))
        .collect();
    assert!(in_leaf.len() > 300, "{} samples in burn_leaf", in_leaf.len());
    let whole = in_leaf.iter().filter(|(_, sample)| {
        let names: Vec<_> = sample.user_chain.iter().take(3).map(name).collect();
        names == [Some("burn_leaf"), Some("burn_middle"), Some("main")] && !sample.chain_is_full
    });
    // The first instructions of a function have no frame yet, and so miss one caller.
    let whole = whole.count();
    assert!(whole * 100 >= in_leaf.len() * 97, "{whole} of {}", in_leaf.len());
    assert!(in_leaf.iter().all(|(_, sample)| sample.kernel_chain.is_empty()));
}

#[test]
fn stack_copies_begin_at_the_stack_pointer() {
    let Some(recorded) = record("burn 300", &Settings::default()) else { return };
    let functions = symbols(&recorded.program);
    let range = |wanted: &str| {
        let (start, (size, _)) = functions.iter().find(|(_, (_, name))| name == wanted).unwrap();
        *start..start + size
    };
    let (leaf, caller) = (range("burn_leaf"), range("burn_middle"));
    let records = recorded.records();
    let (mut in_leaf, mut with_caller) = (0, 0);
    for (_, sample) in samples(&records, EventKind::Cpu) {
        let Some(registers) = sample.user_registers else { continue };
        assert!(sample.user_chain.is_empty());
        if sample.in_kernel || !leaf.contains(&registers.ip) {
            continue;
        }
        assert_eq!(sample.ip, registers.ip);
        in_leaf += 1;
        // Below main lie a few hundred bytes of start-up, arguments and environment: the copy is shorter than asked.
        assert!(!sample.stack.is_empty() && sample.stack.len() <= 16 << 10);
        let word = |at: usize| u64::from_ne_bytes(sample.stack[at..at + 8].try_into().unwrap());
        with_caller += u32::from(caller.contains(&word(0)) || caller.contains(&word(8)));
    }
    assert!(in_leaf > 150, "{in_leaf} samples in burn_leaf");
    assert!(
        with_caller * 100 >= in_leaf * 97,
        "{with_caller} of {in_leaf} have the return address where it lies"
    );
}

#[test]
fn time_off_cpu_is_what_the_program_slept() {
    let Some(recorded) = record("sleep 50", &frame_pointers()) else { return };
    let (mut waited_ns, mut preempted_ns, mut left_at, mut pairs) = (0, 0, None, 0);
    for Record { stamp, body } in recorded.records() {
        match body {
            Body::SwitchOut { is_preempted, .. } => {
                assert_eq!(left_at, None, "two departures without an arrival");
                left_at = Some((stamp.time_ns, is_preempted));
            }
            Body::SwitchIn { .. } => {
                let Some((at, is_preempted)) = left_at.take() else { continue };
                pairs += 1;
                *if is_preempted { &mut preempted_ns } else { &mut waited_ns } += stamp.time_ns - at;
            }
            _ => {}
        }
    }
    assert!(pairs >= 50);
    // On a busy machine the program is also preempted between a look at its clock and the sleep.
    let slept_ns = recorded.said("slept");
    let nearest_ns = slept_ns.clamp(waited_ns, waited_ns + preempted_ns);
    assert_near("time off CPU", nearest_ns as f64, slept_ns as f64, 0.02);
}

#[test]
fn switches_have_stacks_where_the_kernel_is_visible() {
    let Some(recorded) = record("sleep 30", &frame_pointers()) else { return };
    if !recorded.granted.kernel_visible {
        assert!(!recorded.granted.switch_stacks);
        return;
    }
    let functions = symbols(&recorded.program);
    // nanosleep itself keeps no frame pointer, so that its caller is skipped: main is the first to be seen.
    let (start, (size, _)) = functions.iter().find(|(_, (_, name))| name == "main").unwrap();
    let records = recorded.records();
    let (mut under_main, mut all) = (0, 0);
    for (_, sample) in samples(&records, EventKind::Switch) {
        assert!(sample.in_kernel && !sample.kernel_chain.is_empty());
        let is_under_main = sample.user_chain.iter().any(|address| (*start..start + size).contains(&address));
        all += sample.period;
        under_main += if is_under_main { sample.period } else { 0 };
    }
    assert_eq!(all, counts_of(&recorded, EventKind::Switch).value);
    assert!(under_main >= 30, "{under_main} of 30");
}

#[test]
fn the_sideband_tells_of_exec_mappings_and_threads() {
    let Some(recorded) = record("threads 8", &frame_pointers()) else { return };
    let (mut execs, mut forks, mut exits, mut burners, mut mappings) = (vec![], vec![], vec![], 0, vec![]);
    for Record { body, .. } in recorded.records() {
        match body {
            Body::Name { name, is_exec: true, .. } => execs.push(name.to_vec()),
            Body::Name { name: b"burner", .. } => burners += 1,
            Body::Fork(task) => {
                assert_eq!(
                    (task.pid, task.parent_pid),
                    (recorded.pid, recorded.pid),
                    "a thread, not a process"
                );
                forks.push(task.tid);
            }
            Body::Exit(task) if task.tid != recorded.pid => exits.push(task.tid),
            Body::Mapping(mapping) if mapping.path == recorded.program.to_str().unwrap().as_bytes() => {
                mappings.push((mapping.file.clone(), mapping.protection, mapping.is_data));
            }
            _ => {}
        }
    }
    assert_eq!(execs, [b"target"]);
    assert_eq!((forks.len(), burners), (8, 8));
    forks.sort_unstable();
    exits.sort_unstable();
    assert_eq!(forks, exits);
    let build_id = harness::build_id(&recorded.program);
    assert_eq!(
        mappings,
        [(FileIdentity::BuildId(build_id.parse().unwrap()), 5, false)],
        "one executable segment"
    );
}

#[test]
fn every_thread_is_sampled() {
    let Some(recorded) = record("threads 8", &frame_pointers()) else { return };
    let mut by_thread = BTreeMap::<u32, u64>::new();
    let records = recorded.records();
    samples(&records, EventKind::Cpu)
        .iter()
        .for_each(|(tid, sample)| *by_thread.entry(*tid).or_default() += sample.period);
    by_thread.remove(&recorded.pid);
    assert_eq!(by_thread.len(), 8);
    assert_near("time of the threads", by_thread.values().sum::<u64>() as f64, 8.0 * 30e6, 0.1);
}

#[test]
fn page_faults_carry_their_addresses_and_weights() {
    let Some(recorded) = record("faults 200000", &frame_pointers()) else { return };
    let memory = recorded.said("memory");
    let records = recorded.records();
    let samples = samples(&records, EventKind::PageFault);
    let in_memory = |address: u64| (memory..memory + 200_000 * 4096).contains(&address);
    let (mut in_ours, mut all) = (0, 0);
    for (_, sample) in &samples {
        all += sample.period;
        in_ours += if sample.address.is_some_and(in_memory) { sample.period } else { 0 };
    }
    let counted = counts_of(&recorded, EventKind::PageFault).value;
    assert!((200_000..201_000).contains(&counted), "{counted}");
    let cpus = std::thread::available_parallelism().unwrap().get() as u64;
    let a_sample = recorded.granted.faults_a_sample;
    assert!(all <= counted && counted - all < a_sample * cpus, "{all} of {counted}");
    assert_near(
        "share of faults in the memory",
        in_ours as f64 / all as f64,
        200_000.0 / counted as f64,
        0.05,
    );
}

/// Since Linux 6.3 software events of two profilers share what the kernel gathers for a sample: the second gets the
/// first one's event id, and room for fields that it did not ask for.
#[test]
fn two_profilers_of_the_same_page_faults_do_not_confuse_us() {
    let copies = Settings { ring_bytes: Some(32 << 20), ..Settings::default() };
    for (followed, other) in [(copies.clone(), frame_pointers()), (frame_pointers(), copies)] {
        let Some(mut target) = Target::start("faults 50000") else { return };
        let child = Targets::Child { pid: target.pid() };
        let mut second = Session::open(child, &other).unwrap();
        let mut session = Session::open(child, &followed).unwrap();
        target.go();
        let recorded = target.follow(&mut session);
        let (decoder, mut bytes) = (second.decoder(), Vec::new());
        let mut merger = Merger::new(decoder.clone(), 1 << 30);
        second.drain(&mut |ring, record| push(&mut merger, ring, record));
        merger.finish(&mut |_, record| bytes.push(record.to_vec()));
        let records: Vec<_> = bytes.iter().map(|bytes| decoder.parse(bytes).unwrap()).collect();
        let lost = |counts: &[EventCounts]| {
            let of_faults = counts.iter().find(|row| row.kind == EventKind::PageFault).unwrap();
            of_faults.lost.unwrap()
        };
        let (lost, lost_of_second) = (lost(&recorded.counts), lost(&second.counts()));
        for (records, lost, granted) in
            [(recorded.records(), lost, &recorded.granted), (records, lost_of_second, second.granted())]
        {
            let faults = samples(&records, EventKind::PageFault);
            let all: u64 = faults.iter().map(|(_, sample)| sample.period).sum();
            let all = all + lost * granted.faults_a_sample;
            assert!((49_000..51_000).contains(&all), "{all} of some 50,000 in {} samples", faults.len());
            assert!(faults.len() >= 10);
            assert!(faults.iter().all(|(tid, sample)| *tid == recorded.pid && sample.address.is_some()));
        }
    }
}

#[test]
fn lost_records_are_as_many_as_the_events_say() {
    let settings = Settings { ring_bytes: Some(32 << 10), frequency: 4000, ..Settings::default() };
    let Some(mut target) = Target::start("burn 800") else { return };
    let mut session = Session::open(Targets::Child { pid: target.pid() }, &settings).unwrap();
    target.go();
    std::thread::sleep(Duration::from_millis(400));
    let recorded = target.follow(&mut session);
    let told: u64 = recorded
        .records()
        .iter()
        .map(|record| if let Body::Lost { count } = record.body { count } else { 0 })
        .sum();
    let counted: u64 = recorded.counts.iter().map(|row| row.lost.unwrap()).sum();
    assert!(counted > 100, "{counted} lost");
    assert_eq!(told, counted);
}

#[test]
fn one_ring_a_thread_keeps_switches_names_and_new_threads() {
    let Some(mut target) = Target::start("crowd 400") else { return };
    target.go();
    target.wait_for("ready");
    let tids = target.threads();
    assert_eq!(tids.len(), 67);
    let settings = Settings { descriptors: Some(500), ..frame_pointers() };
    let mut session = Session::open(Targets::Threads(&tids), &settings).unwrap();
    let granted = session.granted().clone();
    assert_eq!((granted.layout, granted.attached), (RingLayout::PerThread, 67), "{granted:?}");
    session.enable().unwrap();
    target.go();
    let mut added = Vec::new();
    let recorded = target.follow_with(&mut session, |session, record| {
        if let Body::Fork(task) = record.body {
            added.push((task.tid, session.add_thread(task.tid).unwrap()));
        }
    });
    assert!(matches!(added[..], [(_, Attached::Now)]), "{added:?}");
    let records = recorded.records();
    let mut by_thread = BTreeMap::<u32, u64>::new();
    samples(&records, EventKind::Cpu)
        .iter()
        .for_each(|(tid, sample)| *by_thread.entry(*tid).or_default() += sample.period);
    let late = by_thread.get(&added[0].0).copied().unwrap_or(0);
    assert_near("time of the thread that came later", late as f64, 400e6, 0.3);
    // The sleepers woke in the window: one arrival each, and an exit.
    let exits = records.iter().filter(|record| matches!(record.body, Body::Exit(_))).count();
    let mut arrived: Vec<u32> = records
        .iter()
        .filter(|record| matches!(record.body, Body::SwitchIn { .. }))
        .map(|record| record.stamp.tid)
        .collect();
    arrived.sort_unstable();
    arrived.dedup();
    assert!(exits >= 65, "{exits} exits");
    assert!(arrived.len() >= 65, "{} threads arrived", arrived.len());
    assert!(session.is_over());
    session.drain(&mut |_, _| {});
    assert_eq!(session.open_rings(), 0, "ended threads give their rings and descriptors back");
    assert!(counts_of(&recorded, EventKind::Cpu).value >= 400_000_000, "what they counted is kept");
}

#[test]
fn running_threads_are_attached_by_cpu() {
    let Some(mut target) = Target::start("crowd 400") else { return };
    target.go();
    target.wait_for("ready");
    let mut tids = target.threads();
    tids.push(u32::MAX / 4); // no such thread
    let mut session = Session::open(Targets::Threads(&tids), &frame_pointers()).unwrap();
    let granted = session.granted().clone();
    assert_eq!((granted.layout, granted.attached, granted.gone), (RingLayout::PerCpu, 67, 1));
    session.enable().unwrap();
    target.go();
    let recorded = target.follow(&mut session);
    let records = recorded.records();
    let new: Vec<u32> = records
        .iter()
        .filter_map(|record| if let Body::Fork(task) = record.body { Some(task.tid) } else { None })
        .collect();
    let [new] = new[..] else { panic!("{new:?}") };
    let time: u64 = samples(&records, EventKind::Cpu)
        .iter()
        .filter(|(tid, _)| *tid == new)
        .map(|(_, sample)| sample.period)
        .sum();
    assert_near("time of the inherited thread", time as f64, 400e6, 0.1);
    assert!(session.is_over());
}

#[test]
fn the_whole_machine_for_those_who_may() {
    if !can_record() {
        return;
    }
    let opened = Session::open(Targets::WholeMachine, &frame_pointers());
    if !Access::probe().whole_machine {
        let error = opened.unwrap_err();
        assert!(matches!(error, OpenError::Refused(Refusal::WholeMachine { .. })), "{error}");
        return;
    }
    let mut session = opened.unwrap();
    session.enable().unwrap();
    let Some(mut target) = Target::start("burn 400") else { return };
    target.go();
    let recorded = target.follow(&mut session);
    let records = recorded.records();
    let time: u64 = samples(&records, EventKind::Cpu)
        .iter()
        .filter(|(tid, _)| *tid == recorded.pid)
        .map(|(_, sample)| sample.period)
        .sum();
    assert_near("time of the program", time as f64, recorded.said("cpu") as f64, 0.1);
    let pairs = |record: &&Record<'_>| matches!(record.body, Body::SwitchOut { other: Some(_), .. });
    assert!(records.iter().filter(pairs).count() > 10);
}

#[test]
fn processes_of_others_are_refused_in_their_own_words() {
    if is_root() || !can_record() {
        eprintln!("SKIPPED here: root may look into every process (the ordinary user's run tests it)");
        return;
    }
    let error = Session::open(Targets::Threads(&[1]), &frame_pointers()).unwrap_err();
    assert!(matches!(error, OpenError::Refused(Refusal::OtherUser { tid: 1 })), "{error}");
}

#[test]
fn the_frequency_stays_clear_of_the_limit_of_the_host() {
    if !can_record() {
        return;
    }
    let limit = Access::probe().max_sample_rate.unwrap();
    let settings = Settings { frequency: u32::MAX, ..frame_pointers() };
    let session = Session::open(Targets::Threads(&[std::process::id()]), &settings).unwrap();
    let (granted, used) = (session.granted(), limit / 2);
    assert_eq!(granted.frequency, used);
    assert!(granted.limitations.contains(&Limitation::FrequencyLowered { asked: u32::MAX, used, limit }));
}

#[test]
fn sessions_may_be_handed_to_other_threads() {
    fn may<T: Send>() {}
    may::<Session>();
    may::<Merger>();
}

#[test]
fn a_target_that_is_gone_is_no_refusal() {
    if !can_record() {
        return;
    }
    let error = Session::open(Targets::Threads(&[u32::MAX / 4]), &frame_pointers()).unwrap_err();
    assert!(matches!(error, OpenError::TargetGone), "{error}");
}

#[test]
fn everything_again_as_an_ordinary_user() {
    // One after the other: what a user may lock for rings is one limit for all of them.
    as_ordinary_user(&["--skip", "everything_again", "--test-threads=1"]);
}

/// Not a test of its own: what `a_seccomp_filter_is_named` runs behind a filter.
#[test]
#[ignore = "runs behind a filter, from another test"]
fn behind_the_filter() {
    let refusal = Access::probe().own_processes.unwrap_err();
    assert!(matches!(refusal, Refusal::Seccomp { .. }), "{refusal}");
    let error = Session::open(Targets::Threads(&[std::process::id()]), &frame_pointers()).unwrap_err();
    assert!(matches!(error, OpenError::Refused(Refusal::Seccomp { .. })), "{error}");
}

#[test]
fn a_seccomp_filter_is_named() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "behind_the_filter"]).stdout(Stdio::piped());
    // SAFETY: the filter is set up with two system calls, which are safe between fork and exec.
    unsafe { command.pre_exec(harness::forbid_perf_events) };
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
