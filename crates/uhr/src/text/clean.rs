//! Names come from recorded programs, and a terminal obeys what it is sent: nothing that is no letter reaches it.

use std::borrow::Cow;

/// The text with a mark (U+FFFD) in place of every control character, of line and paragraph separators, and of the
/// characters that turn the direction of writing.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    if text.chars().any(is_unsafe) {
        Cow::Owned(text.chars().map(|c| if is_unsafe(c) { '\u{fffd}' } else { c }).collect())
    } else {
        Cow::Borrowed(text)
    }
}

fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{061c}')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fff9}'..='\u{fffb}')
}

/// Columns of a terminal that `text` takes. Wide are the scripts of East Asia and emoji (the ranges of Unicode's
/// EastAsianWidth.txt, coarsely: a wrong guess moves a column, no more); combining marks take none.
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(width_of).sum()
}

/// Columns of one character.
pub(crate) fn width_of(c: char) -> usize {
    match c as u32 {
        0x300..=0x36f | 0x200b..=0x200d | 0x20d0..=0x20ff | 0xfe00..=0xfe0f => 0,
        0x1100..=0x115f | 0x2e80..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff | 0xfe30..=0xfe6f => 2,
        0xff00..=0xff60 | 0xffe0..=0xffe6 | 0x1f300..=0x1faff | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

/// The text cut to `columns`, with `…` where something is missing at its end.
pub(crate) fn cut_end(text: &str, columns: usize) -> Cow<'_, str> {
    if width(text) <= columns {
        return Cow::Borrowed(text);
    }
    let mut used = 0;
    let kept = text.chars().take_while(|&c| {
        used += width_of(c);
        used < columns
    });
    Cow::Owned(kept.chain(['…']).collect())
}

/// The text cut to `columns`, with `…` where something is missing in its middle. Names of templates and of methods differ at
/// their end, and what is marked as shortened has a hash there. In a narrow place the beginning says more.
pub(crate) fn cut_middle(text: &str, columns: usize) -> Cow<'_, str> {
    const NARROW: usize = 24;
    if width(text) <= columns || columns < NARROW {
        return cut_end(text, columns);
    }
    let tail = cut_start(text, columns / 2);
    let head = cut_end(text, columns - width(&tail) + 1);
    Cow::Owned(format!("{}{tail}", head.trim_end_matches('…')))
}

/// The text cut to `columns`, with `…` where something is missing at its start: the end of a path says more.
pub(crate) fn cut_start(text: &str, columns: usize) -> Cow<'_, str> {
    if width(text) <= columns {
        return Cow::Borrowed(text);
    }
    let mut used = 0;
    let kept: Vec<char> = text
        .chars()
        .rev()
        .take_while(|&c| {
            used += width_of(c);
            used < columns
        })
        .collect();
    Cow::Owned(std::iter::once('…').chain(kept.into_iter().rev()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_passes() {
        assert_eq!(clean("std::vec::Vec<u8>"), "std::vec::Vec<u8>");
        assert_eq!(
            clean("a\x1b[2Jb\r\n\u{9b}31m\u{202e}c"),
            "a\u{fffd}[2Jb\u{fffd}\u{fffd}\u{fffd}31m\u{fffd}c"
        );
    }

    #[test]
    fn cuts_keep_the_width() {
        assert_eq!(cut_end("parse_json", 10), "parse_json");
        assert_eq!(cut_end("parse_json", 6), "parse…");
        assert_eq!(cut_start("/usr/lib/libc.so", 8), "…libc.so");
        assert_eq!(cut_end("写写写", 4), "写…");
        let template = "void spin<P<I<1000>, I<1001>, I<1002>, I<1> > >(double)";
        assert_eq!(cut_middle(template, 30), "void spin<P<I<1…1> > >(double)");
        assert_eq!(cut_middle(template, 12), "void spin<P…");
        for columns in 24..60 {
            assert_eq!(width(&cut_middle(template, columns)), columns.min(template.len()));
            assert!(width(&cut_middle(&"写a".repeat(30), columns)) <= columns);
        }
        for columns in 1..12 {
            assert!(width(&cut_end("a写b写c写d", columns)) <= columns);
            assert!(width(&cut_start("a写b写c写d", columns)) <= columns);
        }
    }
}
