//! Ctrl-C and other requests to end, taken from a descriptor instead of a handler: they arrive where the recorder looks,
//! and each says whether the terminal sent it (then the command got it too) or somebody meant uhr alone.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::FromRawFd;

/// A request to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interrupt {
    /// The signal.
    pub signal: i32,
    /// The kernel sent it to the whole foreground group, as a terminal does on Ctrl-C.
    pub from_terminal: bool,
}

/// The requests to end that uhr gets from now on.
#[derive(Debug)]
pub struct Interrupts(File);

impl Interrupts {
    /// Takes SIGINT, SIGTERM and SIGHUP. To be called before any thread is started: threads inherit it.
    ///
    /// # Errors
    /// What `signalfd` answers.
    pub fn take() -> io::Result<Self> {
        // SAFETY: the set is initialised by sigemptyset before it is used; all pointers are to locals.
        let fd = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::sigaddset(&raw mut set, signal);
            }
            if libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
            libc::signalfd(-1, &raw const set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else owns.
        Ok(Self(unsafe { File::from_raw_fd(fd) }))
    }

    /// The next request, if there is one.
    pub fn pending(&mut self) -> Option<Interrupt> {
        let mut bytes = [0u8; size_of::<libc::signalfd_siginfo>()];
        self.0.read_exact(&mut bytes).ok()?;
        // SAFETY: signalfd_siginfo is plain numbers, any bytes are a value of it, and the kernel filled all of them.
        let seen: libc::signalfd_siginfo = unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) };
        Some(Interrupt { signal: seen.ssi_signo as i32, from_terminal: seen.ssi_code == libc::SI_KERNEL })
    }
}
