//! The text of source lines that came with the code which was made from them.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use uhr_recording::tables::SourceLines as Stored;
use uhr_recording::{Recording, RecordingError};

/// By file and line.
#[derive(Debug, Default)]
pub(crate) struct SourceLines(FxHashMap<String, BTreeMap<u32, Option<String>>>);

impl SourceLines {
    pub(super) fn read(recording: &Recording) -> Result<Self, RecordingError> {
        Ok(Self::new(recording.table()?))
    }

    fn new(stored: Stored) -> Self {
        let mut lines = Self::default();
        for ((file, line), text) in stored.file.into_iter().zip(stored.line).zip(stored.text) {
            let known = lines.0.entry(file).or_default().entry(line).or_insert_with(|| Some(text.clone()));
            // Two files of one name: nothing says which of the two is meant.
            if known.as_ref().is_some_and(|known| *known != text) {
                *known = None;
            }
        }
        lines
    }

    /// The text of a line, if it is known.
    pub(crate) fn get(&self, file: &str, line: u32) -> Option<&str> {
        self.0.get(file)?.get(&line)?.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use uhr_recording::Table;
    use uhr_recording::tables::SourceLineRow;

    use super::*;

    #[test]
    fn a_line_with_two_texts_has_none() {
        let mut stored = Stored::default();
        for (file, line, text) in
            [("a.c", 1, "one"), ("a.c", 1, "one"), ("a.c", 2, "two"), ("a.c", 2, "other"), ("a.c", 2, "two")]
        {
            stored.push(SourceLineRow { file: file.to_owned(), line, text: text.to_owned() });
        }
        let lines = SourceLines::new(stored);
        assert_eq!(lines.get("a.c", 1), Some("one"));
        assert_eq!([lines.get("a.c", 2), lines.get("a.c", 3), lines.get("b.c", 1)], [None; 3]);
    }
}
