//! Which debuginfod servers are asked, if any. Whoever sets `DEBUGINFOD_URLS`, as for gdb, has chosen them; so has
//! whoever gives `--debuginfod`. Nobody else's build ids leave this machine.

use std::path::PathBuf;

use anyhow::Result;
use uhr_debuginfod::{Debuginfod, Limits};
use uhr_model::BuildId;
use uhr_symbolize::DebugFiles;

use crate::failure::{Exit, Failure};
use crate::text::{answer, quantity};

/// The servers of one run.
#[derive(Debug)]
pub(crate) struct DebugServers(Debuginfod);

/// Those that `option` names, else those of `DEBUGINFOD_URLS`; else none, and only their cache is looked at. `None` without
/// a place for a cache.
///
/// # Errors
/// If servers are asked for and nothing names one, or there is no place to keep what they send.
pub(crate) fn chosen(option: Option<&Option<String>>) -> Result<Option<DebugServers>> {
    let named = option.and_then(Option::as_deref).map(str::to_owned);
    let urls = named.or_else(|| std::env::var("DEBUGINFOD_URLS").ok()).unwrap_or_default();
    let asks = !urls.trim().is_empty();
    if option.is_some() && !asks {
        return Err(none_named().into());
    }
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let Some(cache) = Debuginfod::cache_path(variable) else {
        return if asks { Err(no_cache().into()) } else { Ok(None) };
    };
    Ok(Some(DebugServers(Debuginfod::new(&urls, &cache, Limits::default()))))
}

fn no_cache() -> Failure {
    Failure::new(Exit::Failed, "no-cache", "there is no place to keep what debuginfod servers send")
        .hint("set DEBUGINFOD_CACHE_PATH to a folder")
}

fn none_named() -> Failure {
    Failure::new(Exit::Usage, "no-servers", "--debuginfod names no server, and DEBUGINFOD_URLS is not set")
        .hint("name one, such as --debuginfod=https://debuginfod.debian.net")
}

impl DebugServers {
    /// What came of asking, for people.
    pub(crate) fn notes(&self) -> Vec<String> {
        let report = self.0.report();
        let mut notes = report.failures;
        if report.fetched > 0 {
            let size = quantity::bytes(report.bytes as f64);
            let files = answer::plural(report.fetched, "debug file");
            notes.push(format!("fetched {files} ({size}) from debuginfod"));
        }
        if report.absent > 0 {
            let modules = answer::plural(report.absent, "module");
            notes.push(format!("no debuginfod server has the debug files of {modules}"));
        }
        notes
    }
}

impl DebugFiles for DebugServers {
    fn find(&self, id: &BuildId) -> Option<PathBuf> {
        self.0.debug_file(id)
    }
}
