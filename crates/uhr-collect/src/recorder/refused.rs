//! What uhr may not read of the programs that it records, and the command that allows it.

use super::Recorder;
use crate::host::host;

/// Beside CAP_PERFMON and CAP_BPF, which take the samples: CAP_SYS_PTRACE reads other users' mappings and programs,
/// CAP_CHECKPOINT_RESTORE their libraries, CAP_SYSLOG the kernel's names.
pub const SETCAP: &str =
    "sudo setcap cap_bpf,cap_perfmon,cap_sys_ptrace,cap_syslog,cap_checkpoint_restore=ep $(command -v uhr)";

impl Recorder {
    /// A sentence of each kind.
    pub(super) fn refused_in_words(&self) -> Vec<String> {
        let hidden = self.pipeline.hidden_maps.len();
        let mappings =
            (hidden > 0).then(|| format!("the mappings of {}", count(hidden, "process", "processes")));
        let files = self.pipeline.modules.refused();
        let files = files.map(|(files, first)| format!("{} such as {first}", count(files, "file", "files")));
        let whats: Vec<String> = mappings.into_iter().chain(files).collect();
        if whats.is_empty() {
            return Vec::new();
        }
        // Root without capabilities is in a container, or gave them up.
        let remedy = if host().root { "run uhr with all of root's capabilities" } else { SETCAP };
        vec![format!(
            "uhr may not read {}: their code has no names, and stacks end there; to allow it: {remedy}, or run it with sudo",
            whats.join(" and ")
        )]
    }
}

fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}
