//! Names that came from the target are untrusted text. Before a name stands in an answer, characters that could steer a
//! terminal or reorder a line are taken out of it, and a very long one is cut, with a mark and a hash of the whole, so
//! that distinct names stay distinct.

use std::borrow::Cow;

/// The longest name in an answer, in bytes, unless whole names are asked for.
pub(crate) const LONGEST: usize = 256;

/// `name` as answers show it.
pub(crate) fn shown(name: &str, whole: bool) -> Cow<'_, str> {
    let clean: Cow<'_, str> = if name.chars().any(steers) {
        name.chars().filter(|char| !steers(*char)).collect::<String>().into()
    } else {
        name.into()
    };
    if whole || clean.len() <= LONGEST {
        return clean;
    }
    // "…#" and eight digits take 12 bytes.
    let end = (0..=LONGEST - 12).rev().find(|&at| clean.is_char_boundary(at)).unwrap_or(0);
    format!("{}…#{:08x}", &clean[..end], fnv(name)).into()
}

/// Whether `text`, which a user copied from an answer or typed, is this name.
pub(crate) fn is(name: &str, text: &str) -> bool {
    name == text || (is_changed(name) && shown(name, false) == text)
}

fn is_changed(name: &str) -> bool {
    name.len() > LONGEST || name.chars().any(steers)
}

/// Control characters, line and paragraph separators, and what changes the direction of writing.
fn steers(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// FNV-1a with 64 bits, folded because its low bits alone mix little. Written out so that it is the same on every machine
/// and with every version: it marks names that were cut, and gives functions their colours.
pub(crate) fn fnv(text: &str) -> u32 {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash ^ (hash >> 32)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names() {
        assert_eq!(shown("plain<T>::f(int)", false), "plain<T>::f(int)");
        assert_eq!(shown("a\x1b[31mb\nc\u{202e}d", true), "a[31mbcd");
        let (long, other) = ("ü".repeat(200), format!("{}x", "ü".repeat(199)));
        let cut = shown(&long, false);
        assert!(cut.len() <= LONGEST && cut.contains("…#"), "{cut}");
        assert_ne!(cut, shown(&other, false), "distinct names stay distinct");
        assert_eq!(shown(&long, true), long);
        assert!(is(&long, &cut) && is(&long, &long) && !is(&other, &cut));
    }
}
