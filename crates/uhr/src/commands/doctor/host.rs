//! Judges the host: what each fact means for what can be recorded, and which command changes it.

use uhr_collect::Feature;
use uhr_collect::perf::Refusal;

use super::Check;
use super::facts::Facts;

/// uhr's usual rate, in samples a second and CPU.
const USUAL_RATE: u32 = 999;
/// Events of a thread on a CPU: clock, page faults, switches, sideband. Each is a descriptor.
const EVENTS: u64 = 4;
/// The kernel's default of `kernel.perf_event_mlock_kb`: 512 KiB of rings a CPU, and a page that controls each.
const USUAL_RING_KB: u32 = 516;

/// What was looked at, the most important first.
pub(super) fn checks(facts: &Facts) -> Vec<Check> {
    let mut checks = vec![perf_events(facts), ebpf_sampler(facts)];
    if facts.access.own_processes.is_ok() {
        checks.extend([kernel_code(facts), wait_stacks(facts), whole_machine(facts)]);
        if facts.access.kernel {
            checks.push(kernel_names(facts));
        }
        checks.extend([sample_rate(facts), rings(facts), open_files(facts)]);
    }
    checks.extend([
        clock(facts),
        kernel_release(facts),
        proc_folder(facts),
        machine_load(facts),
        debug_files(facts),
    ]);
    if facts.container.is_some() {
        checks.iter_mut().for_each(on_the_host);
    }
    checks
}

/// A container cannot change the kernel's settings: they are the same for all of the host.
fn on_the_host(check: &mut Check) {
    if let Some(fix) = &mut check.fix
        && fix.starts_with("sudo sysctl")
    {
        fix.push_str(" (on the host of this container)");
    }
}

fn perf_events(facts: &Facts) -> Check {
    const NAME: &str = "perf-events";
    match &facts.access.own_processes {
        Ok(()) => {
            Check::ok(NAME, format!("CPU time, waits and page faults of own programs{}", paranoid(facts)))
        }
        Err(refusal) => {
            let check = Check::missing(NAME, refusal.to_string());
            let fix = match refusal {
                // For root there is nothing to lift: it is the container that withholds the capability.
                Refusal::Paranoid { .. } if facts.container.is_some() => {
                    Some("start the container with --cap-add PERFMON")
                }
                other => other.hint(),
            };
            fix.into_iter().fold(check, |check, fix| check.fix(fix))
        }
    }
}

/// uhr's own programs, tried one by one where not all load.
fn ebpf_sampler(facts: &Facts) -> Check {
    const NAME: &str = "ebpf-sampler";
    let features = match &facts.ebpf {
        Ok(features) => features,
        Err(reason) if facts.is_root => return Check::limited(NAME, reason),
        Err(reason) => {
            let finding =
                format!("{reason}: who ends a wait, and whole groups of processes, are not recorded");
            return Check::limited(NAME, finding).fix(uhr_collect::SETCAP);
        }
    };
    let loads =
        |is_wanted: bool| features.iter().filter(move |feature| feature.refused.is_none() == is_wanted);
    let taken: Vec<&str> = loads(true).map(|feature| feature.purpose).collect();
    if loads(false).next().is_none() {
        return Check::ok(NAME, format!("this kernel takes the programs for {}", taken.join(", ")));
    }
    let mut finding = match taken.as_slice() {
        [] => "this kernel takes the programs for nothing".to_owned(),
        taken => format!("this kernel takes the programs for {}", taken.join(", ")),
    };
    for (words, is_unsure) in [("not for", false), ("it could not be asked for", true)] {
        for (reason, what) in by_reason(features, is_unsure) {
            finding += &format!("; {words} {} ({reason})", what.join(", "));
        }
    }
    let has_room = !finding.contains("ulimit -l");
    let check = Check::limited(NAME, finding);
    // Before 5.11 what programs and maps take counts as locked memory.
    if has_room { check } else { check.fix("ulimit -l unlimited") }
}

/// What the kernel did not take, by why; what is done instead stands with it.
fn by_reason(features: &[Feature], is_unsure: bool) -> Vec<(&str, Vec<String>)> {
    let mut found: Vec<(&str, Vec<String>)> = Vec::new();
    for own in features {
        let Some(refusal) = own.refused.as_ref().filter(|refusal| refusal.is_unsure == is_unsure) else {
            continue;
        };
        let what = match own.instead {
            Some(instead) => format!("{}, but {instead}", own.purpose),
            None => own.purpose.to_owned(),
        };
        match found.iter_mut().find(|(reason, _)| *reason == refusal.reason) {
            Some((_, all)) => all.push(what),
            None => found.push((&refusal.reason, vec![what])),
        }
    }
    found
}

/// What the level means, for levels that the mainline kernel knows and for those of Debian and Ubuntu.
fn paranoid(facts: &Facts) -> String {
    let Some(level) = facts.access.paranoid else { return String::new() };
    let meaning = match level {
        ..=-1 => "no limits",
        0 => "everything but raw tracepoints",
        1 => "own programs with their kernel side",
        2 => "user code of own programs",
        _ => "on kernels of Debian and Ubuntu nothing, on others the same as 2",
    };
    let user = if facts.is_root { "; root is not bound by it" } else { "" };
    format!(" (kernel.perf_event_paranoid is {level}: {meaning}{user})")
}

fn kernel_code(facts: &Facts) -> Check {
    const NAME: &str = "kernel-code";
    if facts.access.kernel {
        return Check::ok(NAME, "samples and stacks inside the kernel are seen");
    }
    Check::limited(NAME, "time inside the kernel is counted, but not seen into")
        .fix("sudo sysctl kernel.perf_event_paranoid=1")
}

/// With the kernel visible, stacks come with the switch itself. Without it they are read from outside, under the rules
/// of ptrace (`__ptrace_may_access`, and Yama's `ptrace_scope`).
fn wait_stacks(facts: &Facts) -> Check {
    const NAME: &str = "wait-stacks";
    if facts.access.kernel {
        return Check::ok(NAME, "every wait comes with its stack");
    }
    match facts.ptrace_scope {
        Some(3) => Check::limited(NAME, "waits are timed, without stacks: kernel.yama.ptrace_scope is 3, which lasts until the next boot")
            .fix("sudo sysctl kernel.perf_event_paranoid=1"),
        Some(2) if !facts.may_ptrace => Check::limited(NAME, "waits are timed, without stacks: kernel.yama.ptrace_scope is 2")
            .fix("sudo sysctl kernel.perf_event_paranoid=1"),
        Some(1) if !facts.may_ptrace => Check::limited(
            NAME,
            "stacks of waits longer than a few ms are read from outside, of programs that uhr starts; with --pid \
             waits are timed only (kernel.yama.ptrace_scope is 1)",
        )
        .fix("sudo sysctl kernel.perf_event_paranoid=1"),
        _ => Check::limited(NAME, "stacks of waits longer than a few ms are read from outside; shorter ones are timed only")
            .fix("sudo sysctl kernel.perf_event_paranoid=1"),
    }
}

fn whole_machine(facts: &Facts) -> Check {
    const NAME: &str = "whole-machine";
    if facts.access.whole_machine {
        return Check::ok(NAME, "record -a works");
    }
    Check::limited(NAME, "record -a does not work, nor --pid of other users' processes")
        .fix("run uhr with sudo")
}

fn kernel_names(facts: &Facts) -> Check {
    const NAME: &str = "kernel-names";
    if facts.kernel_symbols {
        return Check::ok(NAME, "kernel functions have names");
    }
    let setting =
        facts.kptr_restrict.map(|value| format!(" (kernel.kptr_restrict is {value})")).unwrap_or_default();
    let check = Check::limited(NAME, format!("kernel functions have no names{setting}"));
    match &facts.kernel_names_remedy {
        Some(remedy) => check.fix(remedy.clone()),
        None => check,
    }
}

fn sample_rate(facts: &Facts) -> Check {
    const NAME: &str = "sample-rate";
    match facts.access.max_sample_rate {
        Some(rate) if rate < USUAL_RATE => Check::limited(
            NAME,
            format!("at most {rate} samples a second: the kernel lowers kernel.perf_event_max_sample_rate when interrupts take long"),
        )
        .fix("sudo sysctl kernel.perf_event_max_sample_rate=100000"),
        Some(rate) => Check::ok(NAME, format!("up to {rate} samples a second and CPU")),
        None => Check::ok(NAME, "no limit is known"),
    }
}

fn rings(facts: &Facts) -> Check {
    const NAME: &str = "ring-memory";
    match facts.access.ring_kb_a_cpu {
        _ if facts.is_root => Check::ok(NAME, "root's ring buffers are not limited"),
        Some(kb) if kb < USUAL_RING_KB => Check::limited(
            NAME,
            format!("{kb} KiB of ring buffers a CPU for all profilers of this user: samples may be lost"),
        )
        .fix(format!("sudo sysctl kernel.perf_event_mlock_kb={USUAL_RING_KB}")),
        Some(kb) => {
            Check::ok(NAME, format!("{kb} KiB of ring buffers a CPU, for all profilers of this user"))
        }
        None => Check::ok(NAME, "no limit is known"),
    }
}

fn open_files(facts: &Facts) -> Check {
    const NAME: &str = "open-files";
    let Some(files) = facts.open_files else { return Check::ok(NAME, "no limit is known") };
    let threads = files / (EVENTS * u64::from(facts.cpus.max(1)));
    let finding = format!("--pid follows up to {threads} running threads with one ring a CPU");
    if threads < 64 {
        return Check::limited(NAME, format!("{finding}, more in a slower way (the limit is {files} files)"))
            .fix("ulimit -Hn 1048576 (as root, in the shell that starts uhr)");
    }
    Check::ok(NAME, finding)
}

fn clock(facts: &Facts) -> Check {
    let cycles = if facts.counts_cycles {
        "the machine could count cycles too; uhr does not use that yet"
    } else {
        "the machine shows no hardware counters, and uhr needs none"
    };
    Check::ok("clock", format!("samples are taken by the cpu-clock; {cycles}"))
}

fn kernel_release(facts: &Facts) -> Check {
    const NAME: &str = "kernel-release";
    let kernel = &facts.kernel;
    match facts.kernel_version() {
        Some(version) if version < (5, 12) => Check::limited(
            NAME,
            format!(
                "Linux {kernel}: mappings come without build ids before 5.12; lost samples are not counted before 6.0"
            ),
        ),
        Some(version) if version < (6, 0) => Check::limited(
            NAME,
            format!("Linux {kernel}: lost samples are not counted for each event before 6.0"),
        ),
        _ => Check::ok(NAME, format!("Linux {kernel} counts lost samples and gives build ids")),
    }
}

fn proc_folder(facts: &Facts) -> Check {
    const NAME: &str = "proc";
    if facts.proc_is_own {
        return Check::ok(NAME, "/proc shows the processes of this pid namespace");
    }
    Check::missing(NAME, "/proc belongs to another pid namespace: pids here and there do not mean the same")
        .fix("mount -t proc proc /proc (in this namespace)")
}

fn machine_load(facts: &Facts) -> Check {
    const NAME: &str = "machine-load";
    match (facts.tells_pressure, facts.tells_run_delay) {
        (true, true) => Check::ok(NAME, "the kernel tells when CPU, memory or I/O is short"),
        (false, true) => {
            Check::limited(NAME, "whether memory or I/O was short is not told (no /proc/pressure); CPU is")
                .fix("boot the kernel with psi=1")
        }
        (true, false) => {
            Check::limited(NAME, "how long threads wait for a CPU is not told (no /proc/PID/schedstat)")
        }
        (false, false) => Check::limited(NAME, "whether CPU, memory or I/O was short is not told")
            .fix("boot the kernel with psi=1"),
    }
}

fn debug_files(facts: &Facts) -> Check {
    const NAME: &str = "debug-files";
    if facts.has_debug_files {
        return Check::ok(NAME, "separate debug files are installed in /usr/lib/debug");
    }
    // Nothing is limited by it in programs of one's own.
    Check::ok(
        NAME,
        "none are installed in /usr/lib/debug: lines of the distribution's libraries are not known",
    )
}

#[cfg(test)]
mod tests {
    use uhr_collect::perf::Access;
    use uhr_collect::{Feature, Refused};

    use super::super::{Status, Verdict, verdict};
    use super::*;

    fn facts() -> Facts {
        Facts {
            access: Access {
                own_processes: Ok(()),
                kernel: true,
                whole_machine: true,
                paranoid: Some(1),
                max_sample_rate: Some(100_000),
                ring_kb_a_cpu: Some(516),
            },
            ebpf: Ok(vec![feature("on_tick", "CPU samples", None), feature("look", "stacks of waits", None)]),
            kernel: "6.18.0-rc1".to_owned(),
            cpus: 2,
            is_root: false,
            may_ptrace: false,
            ptrace_scope: Some(1),
            kernel_symbols: true,
            kptr_restrict: Some(0),
            kernel_names_remedy: None,
            counts_cycles: false,
            open_files: Some(1 << 20),
            container: None,
            proc_is_own: true,
            tells_pressure: true,
            tells_run_delay: true,
            has_debug_files: false,
        }
    }

    fn feature(program: &str, purpose: &'static str, refused: Option<&str>) -> Feature {
        let refused = refused.map(|reason| Refused { reason: reason.to_owned(), is_unsure: false });
        Feature { program: program.to_owned(), purpose, instead: None, refused }
    }

    #[test]
    fn programs_that_the_kernel_does_not_take_are_named_with_the_reason() {
        let mut facts = facts();
        assert!(check(&facts, "ebpf-sampler").finding.contains("stacks of waits"));
        facts.ebpf = Ok(vec![
            feature("on_tick", "CPU samples", None),
            feature("look", "stacks of waits", Some("unknown func bpf_copy_from_user_task#191")),
        ]);
        let limited = check(&facts, "ebpf-sampler");
        assert_eq!(limited.status, Status::Limited);
        assert!(
            limited.finding.contains("CPU samples; not for stacks of waits (unknown func"),
            "{}",
            limited.finding
        );
        let words = "libbpf: map 'calls': failed to create: -ENOMEM".to_owned();
        let mut unsure = feature("tell_calls", "sums of system calls", None);
        unsure.refused = Some(Refused { reason: words, is_unsure: true });
        let walker =
            Feature { instead: Some("copied"), ..feature("walker", "stacks walked", Some("no loop")) };
        let also = feature("look", "stacks of waits", Some("no loop"));
        facts.ebpf = Ok(vec![feature("on_tick", "CPU samples", None), unsure, walker, also]);
        let limited = check(&facts, "ebpf-sampler").finding;
        assert!(
            limited.ends_with(
                "CPU samples; not for stacks walked, but copied, stacks of waits (no loop); it could not be asked for sums of system calls (libbpf: map 'calls': failed to create: -ENOMEM)"
            ),
            "{limited}"
        );
        facts.ebpf = Err("eBPF programs may not be loaded: cap_bpf is missing".to_owned());
        assert!(check(&facts, "ebpf-sampler").fix.unwrap().contains("setcap cap_bpf,cap_perfmon"));
    }

    fn check(facts: &Facts, name: &str) -> Check {
        checks(facts).into_iter().find(|check| check.name == name).unwrap()
    }

    #[test]
    fn a_generous_host_lacks_nothing() {
        assert_eq!(verdict(&checks(&facts())), Verdict::All);
    }

    #[test]
    fn an_ordinary_user_at_2_records_in_part_and_is_told_the_command() {
        let mut facts = facts();
        facts.access = Access { kernel: false, whole_machine: false, paranoid: Some(2), ..facts.access };
        assert_eq!(verdict(&checks(&facts)), Verdict::Part);
        let kernel = check(&facts, "kernel-code");
        assert_eq!(kernel.status, Status::Limited);
        assert_eq!(kernel.fix.as_deref(), Some("sudo sysctl kernel.perf_event_paranoid=1"));
        assert!(check(&facts, "wait-stacks").finding.contains("programs that uhr starts"));
        facts.ptrace_scope = Some(2);
        assert!(check(&facts, "wait-stacks").finding.contains("without stacks"));
        facts.may_ptrace = true;
        assert!(check(&facts, "wait-stacks").finding.contains("read from outside"));
    }

    #[test]
    fn debian_at_3_records_nothing_and_names_the_setting() {
        let mut facts = facts();
        facts.access.own_processes = Err(Refusal::Paranoid { value: 3 });
        let all = checks(&facts);
        assert_eq!(verdict(&all), Verdict::Nothing);
        assert_eq!(all[0].fix.as_deref(), Some("sudo sysctl kernel.perf_event_paranoid=2"));
        assert!(all[0].finding.contains("kernel.perf_event_paranoid is 3"), "{}", all[0].finding);
        assert!(all.iter().all(|check| check.name != "kernel-code"), "nothing is said of what cannot be");
    }

    #[test]
    fn in_a_container_settings_are_those_of_the_host() {
        let mut facts = facts();
        facts.container = Some("docker".to_owned());
        facts.kernel_symbols = false;
        facts.kernel_names_remedy = Some("sudo sysctl kernel.kptr_restrict=0".to_owned());
        let fix = check(&facts, "kernel-names").fix.unwrap();
        assert!(fix.ends_with("(on the host of this container)"), "{fix}");
        facts.access.own_processes = Err(Refusal::Seccomp { error: "EPERM".to_owned() });
        let fix = check(&facts, "perf-events").fix.unwrap();
        assert!(fix.contains("--cap-add PERFMON"), "{fix}");
    }

    #[test]
    fn limits_are_judged() {
        let mut facts = facts();
        facts.access.max_sample_rate = Some(500);
        facts.access.ring_kb_a_cpu = Some(64);
        facts.open_files = Some(256);
        facts.kernel = "5.10.0-30-amd64".to_owned();
        facts.kernel_symbols = false;
        for name in ["sample-rate", "ring-memory", "open-files", "kernel-release", "kernel-names"] {
            assert_eq!(check(&facts, name).status, Status::Limited, "{name}");
        }
        facts.is_root = true;
        assert_eq!(check(&facts, "ring-memory").status, Status::Ok);
    }
}
