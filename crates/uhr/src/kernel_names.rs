//! What lets a user see the kernel's names. `kallsyms_show_value` of the kernel (`kernel/ksyms_common.c`) decides: where
//! `kernel.kptr_restrict` is 0, `kernel.perf_event_paranoid` does; CAP_SYSLOG helps against both, and against 2 nothing does.

/// The command that makes this host show them to this user, where settings are what hides them.
pub(crate) fn remedy_here() -> Option<String> {
    let number = |path: &str| std::fs::read_to_string(path).ok()?.trim().parse().ok();
    // CAP_SYSLOG is bit 34 (include/uapi/linux/capability.h).
    let has_syslog = uhr_collect::effective_capabilities().is_some_and(|bits| bits & 1 << 34 != 0);
    let paranoid = number("/proc/sys/kernel/perf_event_paranoid");
    remedy(has_syslog, number("/proc/sys/kernel/kptr_restrict"), paranoid)
}

fn remedy(has_syslog: bool, kptr_restrict: Option<i32>, paranoid: Option<i32>) -> Option<String> {
    let is_by_pointers = kptr_restrict.is_some_and(|level| level >= if has_syslog { 2 } else { 1 });
    let is_by_events = !has_syslog && paranoid.is_some_and(|level| level > 1);
    let settings = [
        is_by_pointers.then_some(" kernel.kptr_restrict=0"),
        is_by_events.then_some(" kernel.perf_event_paranoid=1"),
    ];
    let settings: String = settings.into_iter().flatten().collect();
    (!settings.is_empty()).then(|| format!("sudo sysctl{settings}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hides_the_kernels_names_is_what_is_to_be_changed() {
        let of = |has_syslog, pointers, events| remedy(has_syslog, Some(pointers), Some(events));
        let expected = |settings: &str| Some(format!("sudo sysctl {settings}"));
        let (pointers, events) = ("kernel.kptr_restrict=0", "kernel.perf_event_paranoid=1");
        assert_eq!(of(false, 0, 2), expected(events));
        assert_eq!(of(false, 1, 1), expected(pointers));
        assert_eq!(of(false, 1, 4), expected(&format!("{pointers} {events}")));
        assert_eq!(of(true, 2, 2), expected(pointers));
        // Nothing that a setting helps against.
        assert_eq!([of(true, 1, 4), of(true, 0, 2), of(false, 0, 1), of(false, 0, -1)], [const { None }; 4]);
    }
}
