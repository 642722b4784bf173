//! How user stacks are taken: by frame pointers, or from copies of the stack.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::modules::parse;
use crate::procfs;
use uhr_unwind::{FramePointers, UnwindModule};

/// What was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnwindChoice {
    /// Frame pointers where all code has them, else copies.
    Auto,
    /// Frame pointers.
    Fp,
    /// Copies of the stack, unwound by call frame information.
    Dwarf,
}

/// Frame pointers are right only if every module keeps them: one that does not breaks the chain for all its callers.
/// Says why, where copies are needed: the first module that lacks them.
pub(crate) fn choose(modules: &[PathBuf]) -> (bool, String) {
    let mut with = 0;
    for path in modules {
        let Some((file, elf)) =
            File::open(path).ok().and_then(|file| parse(&file).ok().map(|elf| (file, elf)))
        else {
            continue;
        };
        match UnwindModule::read(&file, &elf).frame_pointers() {
            FramePointers::Everywhere => with += 1,
            FramePointers::Missing { share } => {
                let percent = (share * 100.0).round();
                return (
                    false,
                    format!("only {percent} % of the code of {} keeps frame pointers", path.display()),
                );
            }
            // It has no function with a frame, as the stub of a program that is all in a library.
            FramePointers::Unknown => {}
        }
    }
    if with == 0 {
        return (false, "the program's files do not tell whether they keep frame pointers".to_owned());
    }
    (true, "all of the program's files keep frame pointers".to_owned())
}

/// The files that a living process runs code from.
pub(crate) fn modules_of_process(pid: u32) -> Vec<PathBuf> {
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    let paths: BTreeSet<PathBuf> = procfs::maps(pid)
        .into_iter()
        .filter(|line| line.executable && line.inode != 0)
        .map(|line| root.join(String::from_utf8_lossy(&line.path).trim_start_matches('/')))
        .collect();
    paths.into_iter().collect()
}

/// The files that a program will run code from, as far as that can be told before: itself (or the interpreter that its
/// first line names) and the libraries that it needs.
pub(crate) fn modules_of_program(program: &Path) -> Vec<PathBuf> {
    let Some(program) = interpreter_of(program) else { return Vec::new() };
    let mut found = vec![program];
    let mut at = 0;
    while let Some(path) = found.get(at).cloned() {
        at += 1;
        let Some(elf) = File::open(&path).ok().and_then(|file| parse(&file).ok()) else { continue };
        for name in elf.needed {
            if let Some(library) = find_library(&name, &path)
                && !found.contains(&library)
                && found.len() < 64
            {
                found.push(library);
            }
        }
    }
    found
}

/// Where the dynamic loader usually finds libraries.
const LIBRARY_FOLDERS: &[&str] = &[
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
    "/usr/local/lib",
];

fn find_library(name: &str, needed_by: &Path) -> Option<PathBuf> {
    let beside = needed_by.parent().map(|folder| [folder.to_owned(), folder.join("../lib")]);
    let folders = LIBRARY_FOLDERS.iter().map(PathBuf::from).chain(beside.into_iter().flatten());
    folders.map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// The program itself, or what its `#!` line names, once.
fn interpreter_of(program: &Path) -> Option<PathBuf> {
    let mut first = [0; 256];
    let length = File::open(program).ok()?.read(&mut first).ok()?;
    let Some(line) = first[..length].strip_prefix(b"#!") else { return Some(program.to_owned()) };
    let line = String::from_utf8_lossy(line.split(|&byte| byte == b'\n').next()?).into_owned();
    let mut words = line.split_ascii_whitespace();
    let interpreter = PathBuf::from(words.next()?);
    if interpreter.file_name().is_some_and(|name| name == "env") {
        return crate::child::find_program(words.find(|word| !word.starts_with('-'))?.as_ref());
    }
    Some(interpreter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_script_is_its_shell() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        std::fs::write(&script, "#!/usr/bin/env -S sh -e\n").unwrap();
        let modules = modules_of_program(&script);
        assert!(modules[0].ends_with("sh"), "{modules:?}");
        assert!(modules.iter().any(|path| path.ends_with("libc.so.6")), "{modules:?}");
    }

    #[test]
    fn frame_pointers_must_be_in_every_module() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("p.c");
        let text = "int f(int x) { volatile char b[900]; for (int i = 0; i < 900; i++) b[i] = x; return b[x & 31]; }\n\
                    int main(int c, char **v) { return f(c) + f(c + 1); }\n";
        std::fs::write(&source, text).unwrap();
        let build = |flag: &str| {
            let out = folder.path().join(flag);
            let built = std::process::Command::new("gcc")
                .args(["-O2", "-fno-inline", flag, "-o"])
                .args([&out, &source])
                .status()
                .unwrap();
            assert!(built.success());
            out
        };
        let without = build("-fomit-frame-pointer");
        let (fp, why) = choose(std::slice::from_ref(&without));
        assert!(!fp && why.contains("-fomit-frame-pointer"), "{why}");
        let (fp, _) = choose(&[]);
        assert!(!fp);
    }
}
