//! `uhr symbolize`: looks up names again, and fills in what was missing.

use std::collections::BTreeMap;

use anyhow::Result;
use schemars::JsonSchema;
use serde::Serialize;
use uhr_query::quoted;
use uhr_recording::tables::Frames;
use uhr_recording::{Added, Recording, RecordingError, State, add_names};
use uhr_symbolize::DebugFiles;

use crate::args::SymbolizeArgs;
use crate::debug_servers::{self, DebugServers};
use crate::failure::{Exit, Failure};
use crate::terminal::Terminal;
use crate::text::answer;
use crate::text::clean::clean;
use crate::{finish, opening, output};

/// `uhr.symbolize/1`: what names were added.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct SymbolizeAnswer {
    /// Always `uhr.symbolize/1`.
    #[schemars(extend("const" = "uhr.symbolize/1"))]
    schema: &'static str,
    /// Always true.
    #[schemars(extend("const" = true))]
    ok: bool,
    /// The recording's folder.
    path: String,
    /// Frames in all.
    frames: u64,
    /// What was added to how many of them.
    added: Gains,
    /// Frames that have no name, by reason.
    without_name: BTreeMap<String, u64>,
    /// The modules that gained something, the one that gained most first.
    modules: Vec<ModuleGains>,
    /// What a reader of the names should know.
    notes: Vec<String>,
    /// Commands that make sense next.
    next: Vec<String>,
}

/// Frames that gained something.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Gains {
    /// Frames that have a name now and had none.
    names: u64,
    /// Frames that had a name alone and have source lines now.
    lines: u64,
    /// Frames that have more inlined functions now.
    inlined: u64,
}

impl Gains {
    fn count(&mut self, added: Added) {
        match added {
            Added::Name => self.names += 1,
            Added::Lines => self.lines += 1,
            Added::Inlined => self.inlined += 1,
            Added::Reason => {}
        }
    }

    fn sum(self) -> u64 {
        self.names + self.lines + self.inlined
    }
}

/// What one module gained.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct ModuleGains {
    /// Its path as the process saw it.
    path: String,
    /// Where its names come from now.
    source: Option<String>,
    /// What was added.
    added: Gains,
}

impl SymbolizeAnswer {
    /// The answer's schema name.
    pub(crate) const SCHEMA: &'static str = "uhr.symbolize/1";

    fn of(recording: &Recording, added: &BTreeMap<u32, Added>, notes: Vec<String>) -> Result<Self> {
        let frames: Frames = recording.table()?;
        let modules = recording.modules()?;
        let mut all = Gains::default();
        let mut by_module: BTreeMap<u32, Gains> = BTreeMap::new();
        for (&frame, &added) in added {
            all.count(added);
            if let Some(module) = frames.module.get(frame as usize).copied().flatten() {
                by_module.entry(module).or_default().count(added);
            }
        }
        let mut gained: Vec<ModuleGains> = Vec::new();
        for module in &modules {
            if let Some(&added) = by_module.get(&module.id).filter(|added| added.sum() > 0) {
                gained.push(ModuleGains { path: module.path.clone(), source: module.symbols.clone(), added });
            }
        }
        gained.sort_by(|a, b| b.added.sum().cmp(&a.added.sum()).then_with(|| a.path.cmp(&b.path)));
        let mut without_name = recording.manifest.ledger.frames.clone();
        without_name.remove("named");
        let path = recording.folder().to_string_lossy().into_owned();
        Ok(Self {
            schema: Self::SCHEMA,
            ok: true,
            next: vec![format!("uhr query {} --group-by function", quoted(&path))],
            path,
            frames: recording.manifest.ledger.frames.values().sum(),
            added: all,
            without_name,
            modules: gained,
            notes,
        })
    }
}

/// Looks up names, writes what they add, and says what that is.
///
/// # Errors
/// If there is no such recording, it is being made, or it cannot be written.
pub(crate) fn run(args: &SymbolizeArgs) -> Result<()> {
    let recording = opening::recording(args.about.recording.as_deref())?;
    if recording.manifest.state != State::Complete {
        return Err(unfinished(&recording).into());
    }
    let servers = debug_servers::chosen(args.debuginfod.as_ref())?;
    let elsewhere = servers.as_ref().map(|servers| servers as &dyn DebugFiles);
    let names = finish::names_from(&recording, elsewhere)?;
    let mut notes = names.notes.clone();
    notes.extend(servers.iter().flat_map(DebugServers::notes));
    let added = add_names(&recording, names).map_err(|error| explain(&recording, error))?;
    let recording = Recording::open(recording.folder())?;
    let answer = SymbolizeAnswer::of(&recording, &added, notes)?;
    output::answer(args.about.form, &answer, lines)
}

/// Of a recording without finished tables every question looks up the names anew.
fn unfinished(recording: &Recording) -> Failure {
    let (path, state) = (recording.folder().display(), recording.manifest.state.name());
    let message =
        format!("{path} is not finished ({state}): there are no names in it that could be added to");
    let hint = "every question looks up its names anew, with the debug files that are there then";
    Failure::new(Exit::Failed, "not-finished", message).hint(hint)
}

/// What root recorded, others may read but not write.
fn explain(recording: &Recording, error: RecordingError) -> anyhow::Error {
    if error.forbidden().is_none() {
        return error.into();
    }
    let path = recording.folder().to_string_lossy();
    let message = format!("this user may not write in {path}, where the names are kept");
    let hint = format!("take a copy: cp -r {} copy, and then uhr symbolize copy", quoted(&path));
    Failure::new(Exit::Failed, "io", message).hint(hint).into()
}

/// The most modules that are shown to people.
const SHOWN: usize = 20;

fn lines(answer: &SymbolizeAnswer, terminal: Terminal) -> Vec<String> {
    let Gains { names, lines, inlined } = answer.added;
    let frames = |count: u64| answer::plural(count, "frame");
    let mut out = vec![if answer.added.sum() == 0 {
        format!("nothing to add to the names of {} in {}", frames(answer.frames), answer.path)
    } else {
        format!(
            "of {} in {}: {names} got a name, {lines} got lines, {inlined} got inlined functions",
            frames(answer.frames),
            answer.path
        )
    }];
    for module in answer.modules.iter().take(SHOWN) {
        let source = module.source.as_deref().unwrap_or("nowhere");
        out.push(format!("  {:>6}  {}: {source}", module.added.sum(), module.path));
    }
    if answer.modules.len() > SHOWN {
        out.push(format!("  and {} more modules: --json shows all", answer.modules.len() - SHOWN));
    }
    if !answer.without_name.is_empty() {
        let reasons = answer.without_name.iter().map(|(reason, count)| format!("{reason} {count}"));
        out.push(format!("without a name: {}", reasons.collect::<Vec<_>>().join(", ")));
    }
    out.extend(answer.notes.iter().map(|note| format!("note: {note}")));
    let mut out: Vec<String> = out.iter().map(|line| clean(line).into_owned()).collect();
    out.extend(answer::next(&answer.next, terminal));
    out
}
