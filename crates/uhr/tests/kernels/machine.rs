//! An emulated machine: collects commands, boots a kernel, runs them there, and hands back what they said.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// Seconds until a machine is taken to hang. It needs two minutes on an idle host.
const PATIENCE: &str = "1200";

/// Says a command's name and status in front of its output, and marks each line of its complaints.
const ASK: &str = r#"
ask() { name=$1; shift; "$@" >out 2>told; echo "@@ $name $?"; cat out; sed 's/^/@! /' told; }
"#;
const ANSWER: &str = "@@ ";
const COMPLAINT: &str = "@! ";

/// A machine that has not been started.
pub(crate) struct Machine {
    kernel: PathBuf,
    folder: TempDir,
    script: String,
}

/// What commands said, by name: status, output, complaints.
pub(crate) struct Said(BTreeMap<String, (i32, String, String)>);

impl Machine {
    /// With the kernel of a series, `None` where there is none or nothing to boot it with.
    pub(crate) fn with(series: &str) -> Option<Self> {
        let Some(kernels) = std::env::var_os("UHR_KERNELS") else {
            eprintln!("SKIPPED: needs kernels: UHR_KERNELS=the folder that .ci/kernels has filled");
            return None;
        };
        let kernel = Path::new(&kernels).join(series).join("vmlinuz");
        if !kernel.exists() {
            eprintln!("SKIPPED: there is no Linux {series} in {}", kernels.display());
            return None;
        }
        Some(Self { kernel, folder: tempfile::tempdir().unwrap(), script: ASK.to_owned() })
    }

    /// Adds a command. Its answer has this name.
    pub(crate) fn ask(&mut self, name: &str, command: &str) {
        writeln!(self.script, "ask {name} {command}").unwrap();
    }

    /// Runs all commands.
    pub(crate) fn boot(self) -> Said {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
        let script = self.folder.path().join("script");
        fs::write(&script, &self.script).unwrap();
        let mut boot = Command::new(sources.join("kernels/boot"));
        boot.arg(&self.kernel).arg(PATIENCE).arg(script).arg(env!("CARGO_BIN_EXE_uhr"));
        for name in ["shares", "waits", "calls", "mapping_names", "short"] {
            boot.arg(self.program(&sources.join(format!("truth/programs/{name}.c")), name));
        }
        let done = boot.stdin(Stdio::null()).output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        assert!(done.status.success(), "{}: {err}\n{out}", done.status);
        Said::read(&out)
    }

    /// Compiles a planted program that keeps its frame pointers and brings its libraries.
    fn program(&self, source: &Path, name: &str) -> PathBuf {
        let out = self.folder.path().join(name);
        let built = Command::new("gcc")
            .args(["-static", "-O2", "-g", "-fno-optimize-sibling-calls", "-fno-omit-frame-pointer"])
            .args(["-DKEEP_FRAMES", "-pthread", "-o"])
            .args([&out, source])
            .status()
            .unwrap();
        assert!(built.success());
        out
    }
}

impl Said {
    fn read(text: &str) -> Self {
        let mut said = BTreeMap::new();
        let mut last = None;
        for line in text.lines() {
            if let Some((name, status)) = line.strip_prefix(ANSWER).and_then(|head| head.split_once(' ')) {
                last = Some(
                    said.entry(name.to_owned())
                        .or_insert_with(|| (status.trim().parse().unwrap(), String::new(), String::new())),
                );
            } else if let Some((_, out, complaints)) = &mut last {
                match line.strip_prefix(COMPLAINT) {
                    Some(complaint) => *complaints += &format!("{complaint}\n"),
                    None => *out += &format!("{line}\n"),
                }
            }
        }
        Self(said)
    }

    /// What a command said, which must have succeeded. Its complaints go where a failing test shows them.
    pub(crate) fn succeeded(&self, name: &str) -> &str {
        let (status, out, complaints) = self.0.get(name).unwrap_or_else(|| panic!("{name} was not run"));
        eprintln!("{name}: {status}\n{complaints}");
        assert_eq!(*status, 0, "{name}: {complaints}{out}");
        out
    }

    /// The same, as JSON.
    pub(crate) fn json(&self, name: &str) -> Value {
        let out = self.succeeded(name);
        serde_json::from_str(out).unwrap_or_else(|error| panic!("{name}: {error}: {out}"))
    }
}
