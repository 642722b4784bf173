//! Collapsed stacks: one line a call path, `main;parse;lex 42`, frames from the root joined by `;`, then a blank and an
//! integer weight. It is the text that Brendan Gregg's `stackcollapse` scripts write and that flame graph tools read.
//!
//! The format has no escaping, and names come from strangers. What could split a frame or a line, or be taken for a
//! weight, is written as in a URL: `%3B` for `;`, `%0A` for a line break, and so on for every control character and
//! line separator; the blank at either end of a name or before a number that ends it (`%20`), because tools take
//! `a 1 2` for two weights; and `%` itself where two hex digits follow, so that the way back is exact. All other names
//! stand as they are.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;

/// Stands for a stack without any frame, which the format cannot write.
pub const NO_STACK: &str = "[no stack]";

/// Collects stacks; equal ones are merged, and the lines come out sorted by their bytes.
#[derive(Debug, Clone, Default)]
pub struct Collapsed {
    weights: BTreeMap<String, u64>,
}

impl Collapsed {
    /// Without any stack.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `weight` to the stack of these frames, the root first. Sums stop at the largest number.
    pub fn add(&mut self, frames: &[&str], weight: u64) {
        let mut line = String::new();
        for (at, frame) in frames.iter().enumerate() {
            if at > 0 {
                line.push(';');
            }
            line.push_str(&escape(frame));
        }
        if frames.is_empty() {
            line.push_str(NO_STACK);
        }
        let sum = self.weights.entry(line).or_default();
        *sum = sum.saturating_add(weight);
    }

    /// Lines that [`Self::write`] will write: stacks that differ.
    pub fn len(&self) -> usize {
        self.weights.len()
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.weights.is_empty()
    }

    /// Writes the lines.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: &mut impl io::Write) -> io::Result<()> {
        let mut out = io::BufWriter::new(out);
        for (stack, weight) in &self.weights {
            io::Write::write_fmt(&mut out, format_args!("{stack} {weight}\n"))?;
        }
        io::Write::flush(&mut out)
    }
}

/// A frame's name as it stands in a line.
pub fn escape(name: &str) -> Cow<'_, str> {
    let number = blank_before_number(name);
    let mut escaped = String::new();
    let mut copied = 0;
    for (at, character) in name.char_indices() {
        let end = at + character.len_utf8();
        let at_edge = at == 0 || end == name.len() || number == Some(at);
        let must = match character {
            ';' | '\u{2028}' | '\u{2029}' => true,
            '%' => hex_pair(name.as_bytes(), at + 1).is_some(),
            _ => character.is_control() || (character.is_whitespace() && at_edge),
        };
        if must {
            escaped.push_str(&name[copied..at]);
            for byte in &name.as_bytes()[at..end] {
                // Writing to a String does not fail.
                let _ = write!(escaped, "%{byte:02X}");
            }
            copied = end;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(name);
    }
    escaped.push_str(&name[copied..]);
    Cow::Owned(escaped)
}

/// The name that [`escape`] wrote. Text of other tools comes back as it is, unless it has a `%` and two hex digits.
pub fn unescape(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let bytes = text.as_bytes();
    let mut name = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match hex_pair(bytes, at + 1) {
            Some(byte) if bytes[at] == b'%' => {
                name.push(byte);
                at += 3;
            }
            _ => {
                name.push(bytes[at]);
                at += 1;
            }
        }
    }
    // What does not decode to text was not written by `escape`.
    String::from_utf8(name).map_or(Cow::Borrowed(text), Cow::Owned)
}

/// The frames, root first, and the weight of one line without its line break; `None` if it ends in no integer.
pub fn parse_line(line: &str) -> Option<(Vec<Cow<'_, str>>, u64)> {
    let (stack, weight) = line.rsplit_once(' ')?;
    Some((stack.split(';').map(unescape).collect(), weight.parse().ok()?))
}

/// Where the blank is that separates a number from the rest of the name.
fn blank_before_number(name: &str) -> Option<usize> {
    let head = name.trim_end_matches(|character: char| character.is_ascii_digit() || character == '.');
    let last = head.chars().next_back().filter(|_| head.len() < name.len())?;
    last.is_whitespace().then(|| head.len() - last.len_utf8())
}

fn hex_pair(bytes: &[u8], at: usize) -> Option<u8> {
    let digit = |at: usize| bytes.get(at).and_then(|&byte| char::from(byte).to_digit(16));
    Some((digit(at)? * 16 + digit(at + 1)?) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(collapsed: &Collapsed) -> String {
        let mut out = Vec::new();
        collapsed.write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn equal_stacks_are_merged_and_lines_sorted() {
        let mut collapsed = Collapsed::new();
        collapsed.add(&["main", "parse", "lex"], 2);
        collapsed.add(&["main"], 1);
        collapsed.add(&["main", "parse", "lex"], 40);
        collapsed.add(&[], 7);
        assert_eq!(text(&collapsed), "[no stack] 7\nmain 1\nmain;parse;lex 42\n");
    }

    #[test]
    fn ordinary_names_stand_as_they_are() {
        for name in [
            "operator new(unsigned long)",
            "std::vec::Vec<u8>::push",
            "100% sure",
            "%",
            "%zz",
            "Größe 写",
            "12",
        ] {
            assert_eq!(escape(name), name);
        }
    }

    #[test]
    fn names_cannot_split_a_frame_a_line_or_the_weight() {
        let cases = [
            ("a;b", "a%3Bb"),
            ("a\nb\rc", "a%0Ab%0Dc"),
            ("a 12", "a%2012"),
            ("a b 1.5", "a b%201.5"),
            (" a ", "%20a%20"),
            ("a%3Bb", "a%253Bb"),
            ("%;3B", "%%3B3B"),
            ("a\u{2028}b", "a%E2%80%A8b"),
        ];
        for (name, escaped) in cases {
            assert_eq!(escape(name), escaped);
            assert_eq!(unescape(escaped), name);
        }
        assert_eq!(unescape("a%FFb"), "a%FFb");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            frames in prop::collection::vec("([a-f0-9%; .]|[\n\r\t]|\\PC|\\pC){0,8}", 1..6),
            weight: u64,
        ) {
            let frames: Vec<&str> = frames.iter().map(String::as_str).collect();
            let mut collapsed = Collapsed::new();
            collapsed.add(&frames, weight);
            let text = text(&collapsed);
            prop_assert_eq!(text.lines().count(), 1);
            let (read, read_weight) = parse_line(text.trim_end_matches('\n')).unwrap();
            prop_assert_eq!(read, frames);
            prop_assert_eq!(read_weight, weight);
        }
    }
}
