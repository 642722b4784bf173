#![forbid(unsafe_code)]
//! Whether code without call frame information keeps frame pointers, as the walk of many of its frames has shown. V8's code
//! and its builtins do, a trampoline of CPython does not, a JVM's compiled methods do or not as it was started.

use rustc_hash::FxHashMap;
use uhr_model::Avma;

/// So many frames have to agree.
const ENOUGH: u32 = 200;

/// What frames of a process have shown, by the file that their code is in; `None` for generated code.
#[derive(Clone, Default, Debug)]
pub(super) struct Evidence {
    by_code: FxHashMap<Option<u32>, Frames>,
    /// What the first functions of goroutines return to, by the file that it is in.
    roots: FxHashMap<u32, Avma>,
    has_changed: bool,
}

#[derive(Clone, Copy, Default, Debug)]
struct Frames {
    agreed: u32,
    has_contradicted: bool,
}

impl Frames {
    fn keeps(self) -> bool {
        self.agreed >= ENOUGH && !self.has_contradicted
    }
}

impl Evidence {
    /// A frame was left in some way, and the frame pointer led the same way or not. One that did not is enough.
    pub(super) fn see(&mut self, code: Option<u32>, agrees: bool) {
        let frames = self.by_code.entry(code).or_default();
        let before = frames.keeps();
        frames.agreed = frames.agreed.saturating_add(u32::from(agrees));
        frames.has_contradicted |= !agrees;
        self.has_changed |= frames.keeps() != before;
    }

    /// The first function of a goroutine was found to return to this address.
    pub(super) fn see_root(&mut self, file: u32, address: Avma) {
        self.has_changed |= self.roots.insert(file, address) != Some(address);
    }

    /// What the first functions of goroutines return to.
    pub(super) fn root(&self, file: u32) -> Option<Avma> {
        self.roots.get(&file).copied()
    }

    /// Whether all code of that file that has no call frame information keeps frame pointers, as far as was seen.
    pub(super) fn keeps_frame_pointers(&self, code: Option<u32>) -> bool {
        self.by_code.get(&code).is_some_and(|frames| frames.keeps())
    }

    /// Whether that has changed since this was last asked.
    pub(super) fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_frames_must_agree_and_one_is_enough_to_contradict() {
        let mut evidence = Evidence::default();
        (1..ENOUGH).for_each(|_| evidence.see(None, true));
        assert!(!evidence.keeps_frame_pointers(None) && !evidence.take_change());
        evidence.see(None, true);
        assert!(evidence.keeps_frame_pointers(None) && evidence.take_change() && !evidence.take_change());
        assert!(!evidence.keeps_frame_pointers(Some(1)), "of other code nothing is known");
        evidence.see(None, false);
        assert!(!evidence.keeps_frame_pointers(None) && evidence.take_change());
        evidence.see(None, true);
        assert!(!evidence.keeps_frame_pointers(None));
    }
}
