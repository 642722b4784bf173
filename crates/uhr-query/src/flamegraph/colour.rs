//! Which colour a frame has. The hue says what kind of code it is and holds for both themes; the shade comes from the
//! names, so that a function looks the same in every graph and neighbours can be told apart. The colours themselves
//! are in the style sheet: OKLCH hues 72, 160, 248 and 345 at close lightness, which stay apart under the common
//! colour-vision deficiencies, each with its text at a contrast of 5.5 or more.

use uhr_model::FrameMode;

use super::tree::Function;
use crate::names::fnv;

/// Shades of one hue: a module picks one of four hues close by, a name one of three lightnesses.
const LIGHTNESSES: u32 = 3;
const NEARBY_HUES: u32 = 4;

/// The style class of a frame, such as `u7`.
pub(super) fn class(function: &Function) -> String {
    match function.mode {
        None => "n".to_string(),
        Some(mode) => {
            let module = fnv(function.module.as_deref().unwrap_or_default());
            let shade = module % NEARBY_HUES * LIGHTNESSES + fnv(&function.name) % LIGHTNESSES;
            format!("{}{shade}", letter(mode))
        }
    }
}

/// The letter that the classes of a mode begin with.
pub(super) fn letter(mode: FrameMode) -> char {
    match mode {
        FrameMode::User => 'u',
        FrameMode::Kernel => 'k',
        FrameMode::Jit => 'j',
        FrameMode::Interpreter => 'i',
        FrameMode::LeftOut => 'n',
    }
}

/// What the legend calls it.
pub(super) fn label(mode: FrameMode) -> &'static str {
    match mode {
        FrameMode::User => "native",
        FrameMode::Kernel => "kernel",
        FrameMode::Jit => "JIT",
        FrameMode::Interpreter => "interpreter",
        FrameMode::LeftOut => "left out",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_keeps_its_colour_and_every_class_has_one() {
        let function = |name: &str, mode| Function { name: name.into(), module: Some("app".into()), mode };
        // Fixed values: a change here changes the colours of everybody's graphs.
        assert_eq!(class(&function("main", Some(FrameMode::User))), "u5");
        assert_eq!(class(&function("main", None)), "n");
        let style = include_str!("flamegraph.css");
        for mode in FrameMode::ALL.iter().filter(|mode| **mode != FrameMode::LeftOut) {
            for shade in 0..NEARBY_HUES * LIGHTNESSES {
                assert_eq!(style.matches(&format!(".{}{shade}{{fill:", letter(*mode))).count(), 2);
            }
        }
    }
}
