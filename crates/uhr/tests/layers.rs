//! The shape of the workspace: an hourglass with the recording as its waist. Read from each crate's `Cargo.toml`, so
//! that a shortcut is caught before it compiles.

use std::collections::BTreeSet;
use std::path::Path;

/// What each crate may depend on, of the project's own crates. Both sides of the waist see the recording and the
/// model, never each other; names know nothing of recordings; only the binary sees everything.
const ALLOWED: &[(&str, &[&str])] = &[
    ("uhr-model", &[]),
    ("uhr-recording", &["uhr-model"]),
    ("uhr-unwind", &["uhr-model"]),
    ("uhr-ebpf", &["uhr-model", "uhr-unwind"]),
    ("uhr-collect", &["uhr-model", "uhr-recording", "uhr-unwind", "uhr-ebpf"]),
    ("uhr-symbolize", &["uhr-model"]),
    ("uhr-debuginfod", &["uhr-model"]),
    ("uhr-query", &["uhr-model", "uhr-recording"]),
    (
        "uhr",
        &[
            "uhr-model",
            "uhr-recording",
            "uhr-unwind",
            "uhr-collect",
            "uhr-symbolize",
            "uhr-debuginfod",
            "uhr-query",
        ],
    ),
];

/// The names of `uhr*` dependencies in a manifest, for every kind of dependency but those of tests.
fn own_dependencies(manifest: &str) -> BTreeSet<String> {
    let mut section = "";
    let mut found = BTreeSet::new();
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
            // [dependencies.uhr-x] and [target.'cfg(..)'.dependencies.uhr-x]
            if let Some((_, name)) = line.trim_end_matches(']').rsplit_once("dependencies.") {
                found.insert(name.to_owned());
            }
            continue;
        }
        let of_tests = section.contains("dev-dependencies");
        let of_crate = section.ends_with("dependencies]") && !of_tests;
        if let Some(name) = line.split(['.', '=', ' ']).next().filter(|_| of_crate) {
            found.insert(name.to_owned());
        }
    }
    found.into_iter().filter(|name| name == "uhr" || name.starts_with("uhr-")).collect()
}

#[test]
fn crates_depend_only_as_the_design_allows() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut seen = 0;
    for entry in std::fs::read_dir(crates).unwrap() {
        let folder = entry.unwrap().path();
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let (_, allowed) = ALLOWED
            .iter()
            .find(|(of, _)| *of == name)
            .unwrap_or_else(|| panic!("{name} is a new crate: say here what it may depend on"));
        for dependency in own_dependencies(&manifest) {
            assert!(
                allowed.contains(&dependency.as_str()),
                "{name} must not depend on {dependency}: see the shape in ARCHITECTURE.md"
            );
        }
        seen += 1;
    }
    assert_eq!(seen, ALLOWED.len(), "a crate that is named here is gone");
}

#[test]
fn the_reader_of_manifests_sees_every_form() {
    let manifest = "
[package]
name = \"uhr-x\"
[dependencies]
uhr-model.workspace = true
uhr-query = { path = \"../uhr-query\" }
serde.workspace = true
[target.'cfg(unix)'.dependencies]
uhr-collect.workspace = true
[dependencies.uhr-recording]
path = \"x\"
[dev-dependencies]
uhr-symbolize.workspace = true
";
    let found: Vec<_> = own_dependencies(manifest).into_iter().collect();
    assert_eq!(found, ["uhr-collect", "uhr-model", "uhr-query", "uhr-recording"]);
}
