//! libbpf says in its log why a program was refused. It is kept for the error, instead of going to the terminal.

use std::sync::{Mutex, Once};

use libbpf_rs::PrintLevel;

/// The end of what it said.
static SAID: Mutex<String> = Mutex::new(String::new());
static ONCE: Once = Once::new();
/// A verifier's log can have megabytes; the reason stands at its end.
const KEPT_BYTES: usize = 64 << 10;

fn keep(_level: PrintLevel, text: String) {
    if let Ok(mut said) = SAID.lock() {
        said.push_str(&text);
        if said.len() > 2 * KEPT_BYTES {
            let cut = said.ceil_char_boundary(said.len() - KEPT_BYTES);
            said.drain(..cut);
        }
    }
}

/// Keeps what libbpf says off the terminal.
pub(crate) fn divert() {
    ONCE.call_once(|| {
        libbpf_rs::set_print(Some((PrintLevel::Info, keep)));
    });
}

/// Begins anew.
pub(crate) fn begin() {
    divert();
    if let Ok(mut said) = SAID.lock() {
        said.clear();
    }
}

/// All that was said since then.
pub(crate) fn said() -> String {
    SAID.lock().map(|said| said.clone()).unwrap_or_default()
}

/// The line that says why, as far as one can tell.
pub(crate) fn reason() -> Option<String> {
    let said = said();
    let lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut telling = lines.filter(|line| {
        !line.starts_with("libbpf:") && !line.starts_with("processed ") && !line.starts_with("-- ")
    });
    let verifier = telling.next_back().map(str::to_owned);
    verifier.or_else(|| said.lines().rfind(|line| line.starts_with("libbpf:")).map(str::to_owned))
}

/// Whether it was no verdict on the program: the rights or the memory for it were not there.
pub(crate) fn has_no_verdict() -> bool {
    is_no_verdict(&said())
}

fn is_no_verdict(said: &str) -> bool {
    const WORDS: [&str; 5] = ["-EPERM", "-ENOMEM", "-EAGAIN", "-EMFILE", "-ENFILE"];
    let mut lines = said.lines().filter(|line| line.starts_with("libbpf:"));
    lines.any(|line| WORDS.iter().any(|word| line.contains(word)) || line.contains("ulimit -l"))
}

#[cfg(test)]
mod tests {
    use super::is_no_verdict;

    #[test]
    fn what_says_nothing_of_the_program_is_no_verdict() {
        assert!(is_no_verdict("libbpf: map 'threads': failed to create: -EPERM\n"));
        assert!(is_no_verdict(
            "libbpf: prog 'look': BPF program load failed: -ENOMEM\nlibbpf: failed to load object"
        ));
        assert!(is_no_verdict(
            "libbpf: Error in bpf_object__probe_loading(): -EPERM. Couldn't load trivial BPF program."
        ));
        assert!(!is_no_verdict("libbpf: map 'threads': failed to create: -EINVAL\n"));
        assert!(!is_no_verdict(
            "libbpf: prog 'look': BPF program load failed: -EACCES\nR6 invalid mem access\n"
        ));
    }
}
