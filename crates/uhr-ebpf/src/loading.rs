//! Loads the compiled programs into the kernel, as many of them as it takes.

use libbpf_rs::{Object, ObjectBuilder, OpenObject};

use crate::error::LoadError;
use crate::options::Options;
use crate::{abi, log, probe};

/// The compiled programs.
pub(crate) const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/sampler.o"));

/// The programs that a sampler cannot do without; of the others it says which are missing.
const REQUIRED: &[&str] =
    &["on_tick", "on_switch", "on_waking", "on_fork", "on_rename", "mark", "tell_times"];

/// Opens the object with the settings written into it.
pub(crate) fn open(options: &Options) -> Result<OpenObject, LoadError> {
    log::begin();
    let mut open =
        ObjectBuilder::default().open_memory(OBJECT).map_err(LoadError::bpf("opening the eBPF object"))?;
    let settings = options.settings();
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if name == ".rodata.settings" {
            map.set_initial_value(abi::bytes(&settings)).map_err(LoadError::bpf("writing the settings"))?;
        }
        if name == "drafts" {
            let cpus = libbpf_rs::num_possible_cpus().map_err(LoadError::bpf("counting the CPUs"))?;
            map.set_max_entries((cpus * abi::DRAFTS) as u32).map_err(LoadError::bpf("sizing a map"))?;
        }
        if let Some((_, bytes)) = options.rings().into_iter().find(|ring| ring.0 == name) {
            map.set_max_entries(bytes).map_err(LoadError::bpf("sizing the ring"))?;
        }
    }
    Ok(open)
}

/// What the kernel took.
pub(crate) struct Loaded {
    pub(crate) object: Object,
    /// Programs that it did not take, each with the reason.
    pub(crate) missing: Vec<(String, String)>,
    /// Whether stacks are walked in the kernel.
    pub(crate) walks_by_rows: bool,
}

/// Loads all programs; where the kernel does not take them, without the walker; or, where it does not take one that can be
/// missed, all others.
pub(crate) fn load(options: &Options) -> Result<Loaded, LoadError> {
    let wanted = options.rows && !options.frame_pointers;
    if let Ok(object) = open(options)?.load() {
        return Ok(Loaded { object, missing: Vec::new(), walks_by_rows: wanted });
    }
    let options = &Options { rows: false, ..options.clone() };
    let walker = wanted.then(|| (probe::WALKER.to_owned(), reason_of("it does not load")));
    let mut missing: Vec<(String, String)> = walker.into_iter().collect();
    let error = match open(options)?.load() {
        Ok(object) => return Ok(Loaded { object, missing, walks_by_rows: false }),
        Err(error) => error,
    };
    for feature in probe::features()?.into_iter().filter(|feature| feature.program != probe::WALKER) {
        match feature.refused {
            None => {}
            Some(reason) if REQUIRED.contains(&feature.program.as_str()) => {
                return Err(LoadError::Unsupported { program: feature.program, reason });
            }
            Some(reason) => missing.push((feature.program, reason)),
        }
    }
    if missing.is_empty() {
        let reason = reason_of(&error.to_string());
        return Err(LoadError::Unsupported { program: "all".to_owned(), reason });
    }
    let mut open = open(options)?;
    for mut program in open.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        program.set_autoload(!missing.iter().any(|(absent, _)| *absent == name));
    }
    let object = open.load().map_err(LoadError::bpf("loading the eBPF programs"))?;
    Ok(Loaded { object, missing, walks_by_rows: false })
}

/// Why the kernel did not take what was last loaded.
fn reason_of(error: &str) -> String {
    log::reason().unwrap_or_else(|| error.to_owned())
}
