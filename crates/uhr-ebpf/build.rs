//! Compiles the eBPF programs with clang.
#![allow(clippy::exit, reason = "cargo shows the words of a build that ends so; a panic would bury them")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Any of these does; the programs are written for the oldest.
const CLANGS: &[&str] = &[
    "clang", "clang-14", "clang-15", "clang-16", "clang-17", "clang-18", "clang-19", "clang-20", "clang-21",
];

/// The objects, and what tells the programs which kernels each is for.
const OBJECTS: &[(&str, Option<&str>)] =
    &[("since_5_18.o", None), ("before_5_18.o", Some("-DUHR_BEFORE_5_18"))];

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let clang = match variable("CLANG") {
        named if !named.is_empty() => named,
        _ => match CLANGS.iter().find(|name| Command::new(name).arg("--version").output().is_ok()) {
            Some(found) => (*found).to_owned(),
            None => stop(
                "clang is missing, which compiles uhr's eBPF programs. Install it: sudo apt-get install clang",
            ),
        },
    };
    for (object, define) in OBJECTS {
        compile(&clang, &PathBuf::from(variable("OUT_DIR")).join(object), *define, &variable);
    }
}

fn compile(clang: &str, object: &Path, define: Option<&str>, variable: &dyn Fn(&str) -> String) {
    let result = Command::new(clang)
        .args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror"])
        // Paths of the machine that compiles are nobody else's business, and differ from build to build.
        .arg("-fdebug-prefix-map=.=uhr-ebpf")
        .arg(format!("-D__TARGET_ARCH_{}", architecture(&variable("CARGO_CFG_TARGET_ARCH"))))
        .arg("-I")
        .arg(variable("DEP_BPF_INCLUDE"))
        .arg("-c")
        .arg(Path::new("bpf").join("sampler.bpf.c"))
        .arg("-o")
        .arg(object)
        .args(define)
        .status();
    match result {
        Ok(status) if status.success() => {}
        Ok(_) => stop(&format!("{clang} could not compile the eBPF programs (its words are above)")),
        Err(error) => {
            stop(&format!("{clang} cannot be run ({error}). Install it: sudo apt-get install clang"))
        }
    }
}

/// The kernel's name of an architecture.
fn architecture(rust: &str) -> &str {
    match rust {
        "x86_64" => "x86",
        "aarch64" => "arm64",
        other => other,
    }
}

fn stop(why: &str) -> ! {
    println!("cargo::error={why}");
    std::process::exit(1)
}
