//! Debug files by build id, from debuginfod servers, as elfutils defines them (`man debuginfod`): `GET
//! URL/buildid/HEX/debuginfo`. The cache is the one that elfutils and gdb use, in the same layout.
//!
//! Servers are strangers. What they send is bounded in size and time, and is used or cached only if it is an ELF file
//! with the build id that was asked for. A server that fails is not asked again.

#![forbid(unsafe_code)]

mod cache;
mod server;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use uhr_model::BuildId;

use cache::{Cache, Cached};
use server::{Reply, Server};

/// How much a server may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Until a connection stands: a server that is not there costs this once.
    pub connect: Duration,
    /// From the request until the answer begins. Servers ask others before they answer.
    pub answer: Duration,
    /// For one file in all.
    pub whole: Duration,
    /// The largest file, in bytes, unpacked.
    pub bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(1),
            answer: Duration::from_secs(5),
            whole: Duration::from_secs(90),
            bytes: 2 << 30,
        }
    }
}

/// The servers, and the cache before them.
#[derive(Debug)]
pub struct Debuginfod {
    servers: Vec<Server>,
    cache: Cache,
    limits: Limits,
    report: Mutex<Report>,
}

/// What came of asking.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Files that were fetched.
    pub fetched: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that no server has, or had a while ago.
    pub absent: u64,
    /// Why a server was not asked again, or a file was not kept: one sentence each.
    pub failures: Vec<String>,
}

impl Debuginfod {
    /// Asks the servers in `urls`, which blanks separate, in that order, and keeps what they send under `cache`. Without
    /// servers, what is in the cache is found.
    pub fn new(urls: &str, cache: &Path, limits: Limits) -> Self {
        let mut report = Report::default();
        let mut servers = Vec::new();
        for url in urls.split_whitespace() {
            if url.starts_with("http://") || url.starts_with("https://") {
                servers.push(Server::new(url, &limits));
            } else {
                report.failures.push(format!("{url} is no http:// or https:// address: not asked"));
            }
        }
        Self { servers, cache: Cache::new(cache), limits, report: Mutex::new(report) }
    }

    /// Where elfutils has its cache: `$DEBUGINFOD_CACHE_PATH`, `$XDG_CACHE_HOME/debuginfod_client`, or
    /// `~/.cache/debuginfod_client`. `variable` reads the environment. `None` without a home.
    pub fn cache_path(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
        let set = |name| variable(name).filter(|path| path.is_absolute());
        set("DEBUGINFOD_CACHE_PATH").or_else(|| {
            let caches = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
            Some(caches.join("debuginfod_client"))
        })
    }

    /// The debug file of a build, in the cache, fetched if it was not there.
    pub fn debug_file(&self, id: &BuildId) -> Option<PathBuf> {
        match self.cache.find(id) {
            Cached::Here(path) => return Some(path),
            Cached::Absent => {
                let asked = u64::from(!self.servers.is_empty());
                self.note(|report| report.absent += asked);
                return None;
            }
            Cached::Unknown => {}
        }
        let mut all_said_no = !self.servers.is_empty();
        for server in &self.servers {
            match self.fetch(server, id) {
                Ok(Some(path)) => return Some(path),
                Ok(None) => {}
                Err(why) => {
                    all_said_no = false;
                    if let Some(why) = why {
                        self.note(|report| report.failures.push(why));
                    }
                }
            }
        }
        if all_said_no {
            self.note(|report| report.absent += 1);
            self.cache.remember_absent(id);
        }
        None
    }

    /// What came of asking so far.
    pub fn report(&self) -> Report {
        self.report.lock().map(|report| report.clone()).unwrap_or_default()
    }

    /// `Ok(None)`: the server has no such file. `Err(None)`: it failed before, and was not asked.
    fn fetch(&self, server: &Server, id: &BuildId) -> Result<Option<PathBuf>, Option<String>> {
        let body = match server.ask(id) {
            Reply::Body(body) => body,
            Reply::Absent => return Ok(None),
            Reply::Silent => return Err(None),
            Reply::Failed(why) => return Err(Some(why)),
        };
        match self.cache.keep(id, body, self.limits.bytes) {
            Ok((path, bytes)) => {
                self.note(|report| {
                    report.fetched += 1;
                    report.bytes += bytes;
                });
                Ok(Some(path))
            }
            Err(why) => Err(Some(server.give_up(&why.to_string()))),
        }
    }

    fn note(&self, change: impl FnOnce(&mut Report)) {
        if let Ok(mut report) = self.report.lock() {
            change(&mut report);
        }
    }
}
