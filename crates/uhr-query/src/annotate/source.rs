//! The text of source lines, as far as it is here and may be believed.

use std::collections::BTreeMap;

use crate::names::shown;

/// A source file on the machine that answers.
#[derive(Debug, Clone)]
pub enum Source {
    /// Its text.
    Text(String),
    /// Why it is not taken, in a few words: `not on this machine`.
    Absent(&'static str),
}

/// The source files of an answer, each read once.
pub(super) struct Sources<'a> {
    read: &'a dyn Fn(&str) -> Source,
    whole_names: bool,
    files: BTreeMap<String, Source>,
}

/// A longer line is no line that somebody reads; it is cut unless names are given whole.
const LONGEST_LINE: usize = 160;

impl<'a> Sources<'a> {
    pub(super) fn new(read: &'a dyn Fn(&str) -> Source, whole_names: bool) -> Self {
        Self { read, whole_names, files: BTreeMap::new() }
    }

    /// The text of a line, counted from 1. A file that does not have the line is another than was compiled: nothing more
    /// is taken from it.
    pub(super) fn line(&mut self, file: &str, line: u32) -> Option<String> {
        let source = self.files.entry(file.to_owned()).or_insert_with(|| (self.read)(file));
        let Source::Text(text) = source else { return None };
        let Some(found) = (line as usize).checked_sub(1).and_then(|at| text.lines().nth(at)) else {
            *source = Source::Absent("it has fewer lines than were compiled");
            return None;
        };
        let clean = found.replace('\t', "    ");
        let clean = shown(clean.trim_end(), true).into_owned();
        if self.whole_names || clean.chars().count() <= LONGEST_LINE {
            return Some(clean);
        }
        Some(clean.chars().take(LONGEST_LINE - 1).chain(['…']).collect())
    }

    /// The files in order, and why their text is not taken.
    pub(super) fn files(self) -> impl Iterator<Item = (String, Option<&'static str>)> {
        let whole = self.whole_names;
        self.files.into_iter().map(move |(file, source)| {
            let absent = match source {
                Source::Text(_) => None,
                Source::Absent(why) => Some(why),
            };
            (shown(&file, whole).into_owned(), absent)
        })
    }
}
