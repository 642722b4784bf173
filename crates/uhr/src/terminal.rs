//! Where text goes: how wide it may be, and whether it may have colour.

use std::io::IsTerminal;
use std::os::fd::AsRawFd;

/// What the standard output can show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Terminal {
    /// Columns of a line.
    pub(crate) width: usize,
    /// Whether escape sequences are welcome.
    pub(crate) colour: bool,
}

impl Terminal {
    /// Lines of a pipe or a file are this long.
    const WIDTH_ELSEWHERE: usize = 100;
    /// Narrower than this no table can be read.
    const NARROWEST: usize = 40;

    /// Asks the standard output, `COLUMNS`, `NO_COLOR` and `TERM`.
    pub(crate) fn of_stdout() -> Self {
        let out = std::io::stdout();
        let is_terminal = out.is_terminal();
        let told = std::env::var("COLUMNS").ok().and_then(|columns| columns.trim().parse().ok());
        let asked = || if is_terminal { window_columns(&out) } else { None };
        let width = told.filter(|&columns| columns > 0).or_else(asked).unwrap_or(Self::WIDTH_ELSEWHERE);
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { width: width.max(Self::NARROWEST), colour: is_terminal && !is_set("NO_COLOR") && !is_dumb }
    }

    /// The text in bold, where that is welcome.
    pub(crate) fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    /// The text in the background, where that is welcome.
    pub(crate) fn dim(self, text: &str) -> String {
        self.with("2", text)
    }

    /// The text as a warning, where that is welcome.
    pub(crate) fn warning(self, text: &str) -> String {
        self.with("33", text)
    }

    /// The text as good news, where that is welcome.
    pub(crate) fn good(self, text: &str) -> String {
        self.with("32", text)
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

fn window_columns(out: &impl AsRawFd) -> Option<usize> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCGWINSZ writes one winsize to the address it is given, and `size` lives through the call.
    let answer = unsafe { libc::ioctl(out.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
    (answer == 0 && size.ws_col > 0).then_some(usize::from(size.ws_col))
}
