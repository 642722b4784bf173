//! Runnable `uhr` commands, as answers name them.

use std::borrow::Cow;

/// A command being put together.
#[derive(Debug, Clone)]
pub(crate) struct Command(String);

impl Command {
    /// `uhr VERB RECORDING`.
    pub(crate) fn new(verb: &str, recording: &str) -> Self {
        Self(format!("uhr {verb} {}", quoted(recording)))
    }

    /// Nothing but what is added.
    pub(crate) fn empty() -> Self {
        Self(String::new())
    }

    /// Adds `--FLAG VALUE`.
    pub(crate) fn with(mut self, flag: &str, value: &str) -> Self {
        // A value that begins with a dash would be taken for a flag.
        let joint = if value.starts_with('-') { '=' } else { ' ' };
        self.0.push_str(&format!(" --{flag}{joint}{}", quoted(value)));
        self
    }

    /// Adds `--FLAG`.
    pub(crate) fn flag(mut self, flag: &str) -> Self {
        self.0.push_str(&format!(" --{flag}"));
        self
    }

    /// The command as one types it.
    pub(crate) fn text(self) -> String {
        self.0
    }
}

/// `text` as one word of a POSIX shell.
pub fn quoted(text: &str) -> Cow<'_, str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:,+@%=".contains(&byte);
    if !text.is_empty() && text.bytes().all(plain) {
        return text.into();
    }
    format!("'{}'", text.replace('\'', r"'\''")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_back_what_was_meant() {
        for word in
            ["plain", "a b", "it's", "$(reboot)", "`x`", "-2s", "", "ünï", "a;b|c>d", "!x", "operator<<(int)"]
        {
            let command = Command::new("query", word).with("function", word).text();
            let script = command.replacen("uhr", "printf '%s\\n'", 1);
            let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
            let printed = String::from_utf8(output.stdout).unwrap();
            let flag = if word.starts_with('-') {
                format!("--function={word}\n")
            } else {
                format!("--function\n{word}\n")
            };
            assert_eq!(printed, format!("query\n{word}\n{flag}"));
        }
    }
}
