//! Loads the compiled programs into the kernel, as many of them as it takes.

use libbpf_rs::{Object, ObjectBuilder, OpenObject};

use crate::error::LoadError;
use crate::options::Options;
use crate::programs::{Programs, REQUIRED, WALKER};
use crate::{abi, log, probe};

/// Opens the programs with the settings written into them.
pub(crate) fn open(options: &Options, programs: Programs) -> Result<OpenObject, LoadError> {
    log::begin();
    let mut open = ObjectBuilder::default()
        .open_memory(programs.object())
        .map_err(LoadError::bpf("opening the eBPF object"))?;
    let settings =
        abi::Settings { looks_a_pass: programs.looks_a_pass(options.looks_a_pass), ..options.settings() };
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if name == ".rodata.settings" {
            map.set_initial_value(abi::bytes(&settings)).map_err(LoadError::bpf("writing the settings"))?;
        }
        if name == "drafts" {
            map.set_max_entries(cpu_numbers()? * abi::DRAFTS as u32)
                .map_err(LoadError::bpf("sizing a map"))?;
        }
        if let Some((_, bytes)) = options.rings().into_iter().find(|ring| ring.0 == name) {
            map.set_max_entries(bytes).map_err(LoadError::bpf("sizing the ring"))?;
        }
    }
    Ok(open)
}

/// How many numbers CPUs can have. Some may be missing between.
fn cpu_numbers() -> Result<u32, LoadError> {
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible");
    let possible = possible.map_err(LoadError::at("reading the numbers of CPUs"))?;
    let last = possible.trim().rsplit([',', '-']).next().and_then(|last| last.parse().ok());
    Ok(last.unwrap_or(0_u32) + 1)
}

/// What the kernel took.
pub(crate) struct Loaded {
    pub(crate) object: Object,
    pub(crate) programs: Programs,
    /// Programs and parts that it did not take, each with the reason.
    pub(crate) missing: Vec<(String, String)>,
    /// Whether stacks are walked in the kernel.
    pub(crate) walks_by_rows: bool,
}

/// Loads all programs: with the walker, without it, or else those for older kernels. `None`: the kernel takes none of these
/// as a whole.
pub(crate) fn load_whole(options: &Options) -> Result<Option<Loaded>, LoadError> {
    let wanted = options.rows && !options.frame_pointers;
    let mut reason = String::new();
    for &programs in Programs::tried() {
        let can_walk = wanted && programs == Programs::Newer;
        for rows in if can_walk { &[true, false][..] } else { &[false] } {
            match open(&Options { rows: *rows, ..options.clone() }, programs)?.load() {
                Ok(object) => {
                    let mut missing = programs.lacks(&reason);
                    if can_walk && !rows {
                        missing.push((WALKER.to_owned(), reason));
                    }
                    return Ok(Some(Loaded { object, programs, missing, walks_by_rows: *rows }));
                }
                Err(error) => reason = reason_of(&error.to_string()),
            }
        }
    }
    Ok(None)
}

/// Loads all programs; or, where the kernel does not take one that can be missed, all others.
pub(crate) fn load(options: &Options) -> Result<Loaded, LoadError> {
    let mut loaded = match load_whole(options)? {
        Some(loaded) => loaded,
        None => load_parts(options)?,
    };
    // Where frame pointers are followed nobody misses the walker.
    loaded.missing.retain(|(part, _)| part != WALKER || !options.frame_pointers);
    Ok(loaded)
}

fn load_parts(options: &Options) -> Result<Loaded, LoadError> {
    let (programs, features) = probe::each()?;
    let mut missing = Vec::new();
    for feature in features {
        match feature.refused {
            None => {}
            Some(refusal) if REQUIRED.contains(&feature.program.as_str()) => {
                return Err(refusal.of(feature.program));
            }
            Some(refusal) => missing.push((feature.program, refusal.reason)),
        }
    }
    let mut open = open(&Options { rows: false, ..options.clone() }, programs)?;
    for mut program in open.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        program.set_autoload(!missing.iter().any(|(absent, _)| *absent == name));
    }
    let object = open.load().map_err(LoadError::bpf("loading the eBPF programs"))?;
    Ok(Loaded { object, programs, missing, walks_by_rows: false })
}

/// Why the kernel did not take what was last loaded.
pub(crate) fn reason_of(error: &str) -> String {
    log::reason().unwrap_or_else(|| error.to_owned())
}
