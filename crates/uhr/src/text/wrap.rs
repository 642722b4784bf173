//! Sentences broken into lines.

use super::clean::{clean, width};

/// The sentence in lines of at most `columns`, broken at blanks. A word that is longer has a line of its own.
pub(crate) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let text = clean(text);
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && width(&line) + 1 + width(word) > columns {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

/// The sentence behind `first` on its first line, and behind as many blanks on the others.
pub(crate) fn hang(first: &str, text: &str, columns: usize) -> Vec<String> {
    let indent = width(first);
    let wrapped = wrap(text, columns.saturating_sub(indent).max(20));
    let begin = |at: usize| if at == 0 { first.to_owned() } else { " ".repeat(indent) };
    if wrapped.is_empty() {
        return vec![first.trim_end().to_owned()];
    }
    wrapped.iter().enumerate().map(|(at, line)| format!("{}{line}", begin(at))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_at_blanks() {
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("incomprehensibilities are long", 10), ["incomprehensibilities", "are long"]);
        assert_eq!(wrap("a\nb \x1b c", 80), ["a\u{fffd}b \u{fffd} c"]);
        assert_eq!(wrap("", 10), [""; 0]);
        assert_eq!(
            hang("- ", "one two three four five six seven", 22),
            ["- one two three four", "  five six seven"]
        );
    }
}
