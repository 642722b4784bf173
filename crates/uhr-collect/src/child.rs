//! A command that is started to be recorded: forked, held before it executes, let go when the events are open.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::CollectError;
use crate::perf::{OpenFiles, raise_open_files};

/// Whom a command runs as.
#[derive(Clone, Debug)]
pub struct User {
    /// User id.
    pub uid: u32,
    /// Main group.
    pub gid: u32,
    /// All its groups.
    pub groups: Vec<u32>,
    /// Name.
    pub name: String,
    /// Home folder.
    pub home: String,
}

/// A child that exists but has not executed its program yet.
#[derive(Debug)]
pub struct HeldChild {
    pid: u32,
    go: PipeWriter,
    spawning: JoinHandle<io::Result<Child>>,
    program: OsString,
}

impl HeldChild {
    /// Forks. The child waits for [`HeldChild::release`], or ends if it is dropped.
    ///
    /// # Errors
    /// [`CollectError::System`] if there is no room for a process.
    pub fn fork(command: &[OsString], user: Option<&User>) -> Result<Self, CollectError> {
        let system = |step| move |source| CollectError::System { step, source };
        let (mut pid_reader, pid_writer) = io::pipe().map_err(system("pipe"))?;
        let (go_reader, go) = io::pipe().map_err(system("pipe"))?;
        let Some((program, arguments)) = command.split_first() else {
            return Err(system("reading the command")(io::Error::from(io::ErrorKind::InvalidInput)));
        };
        let mut command = Command::new(program);
        command.args(arguments);
        if let Some(user) = user {
            command.env("HOME", &user.home).env("USER", &user.name).env("LOGNAME", &user.name);
        }
        let files = raise_open_files().map_err(system("reading the limit of open files"))?;
        let held =
            Held { pid: pid_writer, go: go_reader, go_writer: go.as_raw_fd(), files, user: user.cloned() };
        held.hold(&mut command);
        // `spawn` returns when the program was executed, or could not be: so it waits on a thread of its own.
        let spawning = std::thread::Builder::new()
            .name("uhr-spawn".to_owned())
            .spawn(move || command.spawn())
            .map_err(system("starting a thread"))?;
        let mut pid = [0; 4];
        match pid_reader.read_exact(&mut pid) {
            Ok(()) => Ok(Self { pid: u32::from_ne_bytes(pid), go, spawning, program: program.clone() }),
            Err(error) => {
                drop(go);
                let failed = spawning.join().ok().and_then(Result::err).unwrap_or(error);
                Err(system("fork")(failed))
            }
        }
    }

    /// Its pid.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Lets it execute its program.
    ///
    /// # Errors
    /// [`CollectError::Start`] if the program cannot be executed.
    pub fn release(mut self) -> Result<RunningChild, CollectError> {
        let start = |source| CollectError::Start { program: self.program.clone().into(), source };
        self.go.write_all(&[1]).map_err(start)?;
        let child =
            self.spawning.join().unwrap_or_else(|_| Err(io::Error::other("the starting thread failed")));
        let child = child.map_err(start)?;
        let handle =
            pidfd(child.id()).map_err(|source| CollectError::System { step: "pidfd_open", source })?;
        Ok(RunningChild { child, handle })
    }
}

/// A command that runs.
#[derive(Debug)]
pub struct RunningChild {
    child: Child,
    handle: File,
}

impl RunningChild {
    /// Its pid.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it ended, and how; waits up to `timeout` for it.
    ///
    /// # Errors
    /// What `waitpid` answers.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<Option<ExitStatus>> {
        let mut poll = libc::pollfd { fd: self.handle.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let milliseconds = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: one pollfd, borrowed for the call; the descriptor is open as long as `self` lives.
        unsafe { libc::poll(&raw mut poll, 1, milliseconds) };
        self.child.try_wait()
    }

    /// Sends it a signal. Its pid cannot have passed to another process: it is not reaped before `wait` says so.
    pub fn signal(&self, signal: i32) {
        // SAFETY: plain system call; pidfd_send_signal takes no pointer here (no siginfo).
        unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.handle.as_raw_fd(),
                signal,
                std::ptr::null::<libc::siginfo_t>(),
                0,
            )
        };
    }
}

/// Finds a program as `execvp` would: by path if it has a slash, else in the folders of `PATH`.
pub fn find_program(name: &OsStr) -> Option<PathBuf> {
    if name.as_encoded_bytes().contains(&b'/') {
        return Some(PathBuf::from(name));
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// What the forked child needs before it executes its program.
struct Held {
    /// It tells its pid here.
    pid: PipeWriter,
    /// It waits here for the word,
    go: PipeReader,
    /// which comes from here: the inherited copy of the writing end.
    go_writer: i32,
    files: OpenFiles,
    user: Option<User>,
}

impl Held {
    /// Makes the forked child tell its pid, wait for the word, and undo what it has from uhr.
    fn hold(self, command: &mut Command) {
        // SAFETY: the closure does only what is allowed between fork and exec; see `wait`.
        unsafe { command.pre_exec(move || self.wait()) };
    }

    fn wait(&self) -> io::Result<()> {
        // SAFETY: between fork and exec: only system calls on values that were there before, no allocation. The inherited
        // copy of the writing end is closed, so that the read ends when uhr does.
        unsafe {
            libc::close(self.go_writer);
            let own = libc::getpid().to_ne_bytes();
            libc::write(self.pid.as_raw_fd(), own.as_ptr().cast(), own.len());
            let mut word = 0u8;
            if libc::read(self.go.as_raw_fd(), (&raw mut word).cast(), 1) != 1 {
                libc::_exit(125);
            }
            // uhr blocks signals to take them from a descriptor; the command must not inherit that.
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
            // Nor the raised limit of open files: programs that use select(2) cannot stand it.
            let files = libc::rlimit { rlim_cur: self.files.soft_before, rlim_max: self.files.hard };
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const files);
            if let Some(user) = &self.user
                && (libc::setgroups(user.groups.len(), user.groups.as_ptr()) != 0
                    || libc::setgid(user.gid) != 0
                    || libc::setuid(user.uid) != 0)
            {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }
}

fn pidfd(pid: u32) -> io::Result<File> {
    // SAFETY: plain system call without pointers; the descriptor it returns is new and ours.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { File::from_raw_fd(fd as i32) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_waits_for_the_word_and_passes_its_status_on() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("ran");
        let command = ["sh".into(), "-c".into(), format!("touch {}; exit 7", mark.display()).into()];
        let held = HeldChild::fork(&command, None).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert!(!mark.exists(), "it ran before it was released");
        let mut running = held.release().unwrap();
        let status = loop {
            if let Some(status) = running.wait(Duration::from_secs(5)).unwrap() {
                break status;
            }
        };
        assert_eq!(status.code(), Some(7));
        assert!(mark.exists());
    }

    #[test]
    fn a_program_that_is_not_there() {
        let held = HeldChild::fork(&["no-such-program-anywhere".into()], None).unwrap();
        let Err(CollectError::Start { source, .. }) = held.release() else { panic!("it started") };
        assert_eq!(source.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_dropped_child_never_runs() {
        let held = HeldChild::fork(&["sleep".into(), "100".into()], None).unwrap();
        let pid = held.pid();
        let HeldChild { go, spawning, .. } = held;
        drop(go);
        assert!(
            spawning.join().unwrap().is_err() || !std::path::Path::new(&format!("/proc/{pid}/exe")).exists()
        );
    }
}
