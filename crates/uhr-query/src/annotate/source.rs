//! The text of source lines, as far as it is here and may be believed.

use std::collections::BTreeMap;

use crate::names::shown;
use crate::profile::SourceLines;

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
    /// What came with the code: as it was compiled, wherever the file is now.
    kept: SourceLines,
    whole_names: bool,
    files: BTreeMap<String, Source>,
}

/// A longer line is no line that somebody reads; it is cut unless names are given whole.
const LONGEST_LINE: usize = 160;

impl<'a> Sources<'a> {
    pub(super) fn new(read: &'a dyn Fn(&str) -> Source, kept: SourceLines, whole_names: bool) -> Self {
        Self { read, kept, whole_names, files: BTreeMap::new() }
    }

    /// The text of a line, counted from 1. A file that does not have the line is another than was compiled: nothing more
    /// is taken from it.
    pub(super) fn line(&mut self, file: &str, line: u32) -> Option<String> {
        if let Some(text) = self.kept.get(file, line) {
            return Some(self.clean(text));
        }
        let source = self.files.entry(file.to_owned()).or_insert_with(|| (self.read)(file));
        let Source::Text(text) = source else { return None };
        let Some(found) =
            (line as usize).checked_sub(1).and_then(|at| text.lines().nth(at)).map(str::to_owned)
        else {
            *source = Source::Absent("it has fewer lines than were compiled");
            return None;
        };
        Some(self.clean(&found))
    }

    fn clean(&self, line: &str) -> String {
        let clean = line.replace('\t', "    ");
        let clean = shown(clean.trim_end(), true).into_owned();
        if self.whole_names || clean.chars().count() <= LONGEST_LINE {
            return clean;
        }
        clean.chars().take(LONGEST_LINE - 1).chain(['…']).collect()
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
