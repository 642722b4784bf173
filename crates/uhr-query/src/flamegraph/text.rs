//! Text of strangers in an XML document: made visible, cut, wrapped and escaped.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use crate::names::fnv;

/// Longest name in a tooltip, in characters. C++ names can have tens of kilobytes, and each frame repeats its name.
const NAME_LIMIT: usize = 600;

/// Escapes for XML text and attribute values. Takes text that went through [`visible`] or is our own.
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(['&', '<', '>', '"', '\'']) {
            f.write_str(&rest[..at])?;
            f.write_str(match rest.as_bytes()[at] {
                b'&' => "&amp;",
                b'<' => "&lt;",
                b'>' => "&gt;",
                b'"' => "&quot;",
                _ => "&#39;",
            })?;
            rest = &rest[at + 1..];
        }
        f.write_str(rest)
    }
}

/// Spells out the characters that XML forbids, that break lines, or that reorder or hide text: `\n`, `\u{1b}`.
pub(super) fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_invisible) {
        return Cow::Borrowed(text);
    }
    let mut spelled = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_invisible(character) {
            spelled.extend(character.escape_default());
        } else {
            spelled.push(character);
        }
    }
    Cow::Owned(spelled)
}

/// Control characters, line separators, zero-width and bidirectional marks, tags, and what is no character in XML.
fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
        || u32::from(character) & 0xfffe == 0xfffe
}

/// A name for a tooltip: visible, and if it is very long cut in the middle, with its length and a hash that keeps
/// different names apart.
pub(super) fn tooltip_name(name: &str) -> Cow<'_, str> {
    let Some((cut, _)) = name.char_indices().nth(NAME_LIMIT) else {
        return visible(name);
    };
    let mut text = visible(&name[..cut]).into_owned();
    // Writing to a String does not fail.
    let _ = write!(text, "… [{} bytes, #{:08x}]", name.len(), fnv(name));
    Cow::Owned(text)
}

/// `text` cut to `columns` of a fixed-width font, or nothing if not even two letters and the mark fit.
pub(super) fn label(text: &str, columns: usize) -> Option<Cow<'_, str>> {
    let mut used = 0;
    let mut room_for_mark = 0;
    for (at, character) in text.char_indices() {
        used += columns_of(character);
        if used > columns {
            return (room_for_mark > 1).then(|| Cow::Owned(format!("{}…", &text[..room_for_mark])));
        }
        if used < columns {
            room_for_mark = at + character.len_utf8();
        }
    }
    Some(Cow::Borrowed(text))
}

/// Columns of a character in a fixed-width font; from Hangul and Kana on most take two, and the rest may.
fn columns_of(character: char) -> usize {
    if u32::from(character) >= 0x1100 && !('\u{2000}'..'\u{2300}').contains(&character) { 2 } else { 1 }
}

/// Breaks `text` at blanks into lines of at most `columns`; what has no blank is broken where it must.
pub(super) fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut used = 0;
    for word in text.split_whitespace() {
        let length: usize = word.chars().map(columns_of).sum();
        if used > 0 && used + 1 + length > columns {
            lines.push(std::mem::take(&mut line));
            used = 0;
        } else if used > 0 {
            line.push(' ');
            used += 1;
        }
        for character in word.chars() {
            if used + columns_of(character) > columns {
                lines.push(std::mem::take(&mut line));
                used = 0;
            }
            line.push(character);
            used += columns_of(character);
        }
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_escaped() {
        assert_eq!(
            Escaped("<a b=\"c\" d='e'>&]]>").to_string(),
            "&lt;a b=&quot;c&quot; d=&#39;e&#39;&gt;&amp;]]&gt;"
        );
    }

    #[test]
    fn what_cannot_be_seen_is_spelled_out() {
        assert_eq!(
            visible("a\0b\nc\u{1b}[31m\u{202e}d\u{ffff}"),
            "a\\u{0}b\\nc\\u{1b}[31m\\u{202e}d\\u{ffff}"
        );
        assert!(matches!(visible("Größe::写(&self)"), Cow::Borrowed(_)));
    }

    #[test]
    fn long_names_stay_apart() {
        let (one, two) = ("x".repeat(61_440) + "1", "x".repeat(61_440) + "2");
        assert!(tooltip_name(&one).ends_with(&format!("… [61441 bytes, #{:08x}]", fnv(&one))));
        assert_ne!(tooltip_name(&one), tooltip_name(&two));
        assert!(tooltip_name(&one).len() < 700);
    }

    #[test]
    fn labels_fit_their_frame() {
        assert_eq!(label("main", 4).as_deref(), Some("main"));
        assert_eq!(label("parse_json", 6).as_deref(), Some("parse…"));
        assert_eq!(label("parse_json", 3).as_deref(), Some("pa…"));
        assert_eq!(label("parse_json", 2), None);
        assert_eq!(label("写写写写", 6).as_deref(), Some("写写…"));
        assert_eq!(label("parse_json", 0), None);
    }

    #[test]
    fn lines_break_at_blanks_or_where_they_must() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("abcdefgh ij", 3), ["abc", "def", "gh", "ij"]);
        assert!(wrapped("", 10).is_empty());
    }
}
