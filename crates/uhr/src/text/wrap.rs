//! Sentences broken into lines.

use super::clean::{clean, cut_end, width};

/// The sentence in lines of at most `columns`, broken at blanks. A word that is longer has a line of its own.
pub(crate) fn wrap(text: &str, columns: usize) -> Vec<String> {
    fill(clean(text).split_whitespace(), " ", columns)
}

/// Items in lines of at most `columns`, none of them broken; between them stands `joint`.
fn fill<'a>(items: impl Iterator<Item = &'a str>, joint: &str, columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for item in items {
        if !line.is_empty() {
            line.push_str(joint);
            if width(&line) + width(item) > columns {
                lines.push(std::mem::take(&mut line).trim_end().to_owned());
            }
        }
        line.push_str(item);
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

/// The sentence behind `first` on its first line, and behind as many blanks on the others.
pub(crate) fn hang(first: &str, text: &str, columns: usize) -> Vec<String> {
    behind(first, wrap(text, room(first, columns)))
}

/// The same for items such as the functions of a path, which are not broken unless one fills a line.
pub(crate) fn hang_items(first: &str, items: &[String], joint: &str, columns: usize) -> Vec<String> {
    let room = room(first, columns);
    let items: Vec<String> = items.iter().map(|item| cut_end(&clean(item), room).into_owned()).collect();
    behind(first, fill(items.iter().map(String::as_str), joint, room))
}

fn room(first: &str, columns: usize) -> usize {
    columns.saturating_sub(width(first)).max(20)
}

fn behind(first: &str, lines: Vec<String>) -> Vec<String> {
    if lines.is_empty() {
        return vec![first.trim_end().to_owned()];
    }
    let begin = |at: usize| if at == 0 { first.to_owned() } else { " ".repeat(width(first)) };
    lines.iter().enumerate().map(|(at, line)| format!("{}{line}", begin(at))).collect()
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
