//! Go programs, stripped: as Go's own tools name them.

#![allow(clippy::unwrap_used, reason = "a test's own helpers may fail the test")]

mod programs;

use std::path::{Path, PathBuf};
use std::process::Command;

use programs::{base_name, elf, functions, image_base, look_up, run};
use uhr_symbolize::Origin;

const PROGRAM: &str = r#"package main

import "os"

type worker struct{ sum int }

//go:noinline
func (w *worker) spin(n int) {
	for i := 0; i < n; i++ {
		w.sum += i * i
	}
}

func main() {
	w := &worker{}
	w.spin(1000)
	defer func() { w.spin(10) }()
	os.Exit(w.sum & 1)
}
"#;

/// Go, from the path or from where its own installer puts it.
fn go() -> Option<PathBuf> {
    let found = ["go", "/usr/local/go/bin/go"]
        .into_iter()
        .find(|go| Command::new(go).arg("version").output().is_ok());
    if found.is_none() {
        #[allow(clippy::print_stderr, reason = "a test says what it skips")]
        {
            eprintln!("SKIPPED Go's function table: there is no go here");
        }
    }
    found.map(PathBuf::from)
}

fn build(go: &Path, folder: &Path, out: &str, flags: &[&str]) -> PathBuf {
    let (source, out) = (folder.join("main.go"), folder.join(out));
    std::fs::write(&source, PROGRAM).unwrap();
    let mut command = Command::new(go);
    command
        .current_dir(folder)
        .env("GOCACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/go"))
        .env("GOFLAGS", "-mod=mod")
        .env("CGO_ENABLED", "0");
    command.arg("build").args(flags).arg("-o").arg(&out).arg(&source);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    out
}

#[test]
fn a_stripped_go_program() {
    let Some(go) = go() else { return };
    for mode in ["exe", "pie"] {
        let folder = tempfile::tempdir().unwrap();
        let mode = format!("-buildmode={mode}");
        let whole = build(&go, folder.path(), "whole", &[&mode]);
        let stripped = folder.path().join("stripped");
        run("strip", &["--strip-all", whole.to_str().unwrap(), "-o", stripped.to_str().unwrap()]);
        let base = image_base(&whole);
        let listed: Vec<_> = functions(&whole).into_iter().filter(|(_, size, _)| *size > 0).collect();
        let ours: Vec<_> = listed.iter().filter(|(_, _, name)| name.starts_with("main.")).collect();
        assert!(ours.len() >= 2, "{ours:?}");
        for (start, size, name) in ours {
            let stated: Vec<u64> = (*start..start + size).collect();
            let answer = look_up(elf(&stripped), base, &stated);
            assert_eq!((answer.origin, answer.notes), (Origin::GoTable, vec![]));
            // The physical function; what is inlined is not told by this table.
            let lines = programs::oracle(&whole, &stated);
            for ((at, result), chain) in stated.iter().zip(answer.results).zip(lines) {
                let found = result.unwrap();
                assert_eq!(found.locations[0].function.as_deref(), Some(name.as_str()), "{at:#x} {mode}");
                assert_eq!(found.start.0, start - base);
                assert_eq!(base_name(found.locations[0].file.as_deref().unwrap()), "main.go");
                if chain.len() == 1 && chain[0].2 > 0 {
                    assert_eq!(found.locations[0].line, Some(chain[0].2), "{at:#x} {name} {mode}");
                }
            }
        }
        // Every function of the runtime, by its first byte.
        let stated: Vec<u64> = listed.iter().map(|row| row.0).collect();
        let results = look_up(elf(&stripped), base, &stated).results;
        // The calling convention of assembler and the arguments of generics are the linker's addition.
        let plain = |name: &str| name.trim_end_matches(".abi0").split('[').next().unwrap().to_owned();
        let pairs =
            listed.iter().zip(&results).map(|(row, result)| (plain(&row.2), plain(programs::name(result))));
        let wrong: Vec<_> = pairs.filter(|(linker, ours)| linker != ours).collect();
        assert!(wrong.len() * 100 < listed.len(), "{} of {}: {wrong:?}", wrong.len(), listed.len());
    }
}
