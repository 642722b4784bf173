#![forbid(unsafe_code)]
//! Whether code without call frame information keeps frame pointers, as the walk of many of its frames has shown. V8's code
//! and its builtins do, a trampoline of CPython does not, a JVM's compiled methods do or not as it was started.
//!
//! Of a file each gap between what call frame information covers is judged alone: V8's builtins are one of them, and a
//! function in assembler somewhere else in Node says nothing of them.

use std::collections::BTreeMap;
use std::ops::Range;

use rustc_hash::FxHashMap;
use uhr_model::Avma;

/// So many frames have to agree.
const ENOUGH: u32 = 200;
/// Gaps of a process that are judged at most. Programs were seen with five that they spend time in.
const MAX_GAPS: usize = 1024;

/// What frames of a process have shown.
#[derive(Clone, Default, Debug)]
pub(super) struct Evidence {
    /// By the file that their code is in (`None` for generated code), and where its gap begins.
    by_gap: BTreeMap<(Option<u32>, u64), Frames>,
    /// What the first functions of goroutines return to, by the file that it is in.
    roots: FxHashMap<u32, Avma>,
    has_changed: bool,
}

#[derive(Clone, Copy, Default, Debug)]
struct Frames {
    /// Where the gap ends.
    end: u64,
    agreed: u32,
    has_contradicted: bool,
}

impl Frames {
    fn keeps(self) -> bool {
        self.agreed >= ENOUGH && !self.has_contradicted
    }
}

impl Evidence {
    /// A frame of code in a gap was left in some way, and the frame pointer led the same way or not. One that did not is
    /// enough.
    pub(super) fn see(&mut self, file: Option<u32>, gap: Range<u64>, agrees: bool) {
        let key = (file, gap.start);
        if self.by_gap.len() >= MAX_GAPS && !self.by_gap.contains_key(&key) {
            return;
        }
        let frames = self.by_gap.entry(key).or_insert(Frames { end: gap.end, ..Frames::default() });
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

    /// The gaps of that file in which all code keeps frame pointers, as far as was seen.
    pub(super) fn keeps_frame_pointers(&self, file: Option<u32>) -> Vec<Range<u64>> {
        let gaps = self.by_gap.range((file, 0)..=(file, u64::MAX));
        gaps.filter(|(_, frames)| frames.keeps()).map(|((_, start), frames)| *start..frames.end).collect()
    }

    /// Whether the code at an address that lies in a gap keeps them.
    pub(super) fn keeps_frame_pointer_at(&self, file: Option<u32>, address: u64) -> bool {
        let gap = self.by_gap.range((file, 0)..=(file, address)).next_back();
        gap.is_some_and(|(_, frames)| frames.keeps() && address < frames.end)
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
        let all = 0..u64::MAX;
        (1..ENOUGH).for_each(|_| evidence.see(None, all.clone(), true));
        assert!(evidence.keeps_frame_pointers(None).is_empty() && !evidence.take_change());
        evidence.see(None, all.clone(), true);
        assert_eq!(evidence.keeps_frame_pointers(None).len(), 1);
        assert!(evidence.take_change() && !evidence.take_change());
        assert!(evidence.keeps_frame_pointers(Some(1)).is_empty(), "of other code nothing is known");
        evidence.see(None, all.clone(), false);
        assert!(evidence.keeps_frame_pointers(None).is_empty() && evidence.take_change());
        evidence.see(None, all, true);
        assert!(evidence.keeps_frame_pointers(None).is_empty());
    }

    #[test]
    fn a_contradiction_in_one_gap_says_nothing_of_another() {
        let mut evidence = Evidence::default();
        for gap in [10..20, 40..90, 100..110] {
            (0..ENOUGH).for_each(|_| evidence.see(Some(1), gap.clone(), true));
        }
        evidence.see(Some(1), 10..20, false);
        assert_eq!(evidence.keeps_frame_pointers(Some(1)), [40..90, 100..110]);
        (0..2 * MAX_GAPS as u64).for_each(|at| evidence.see(Some(2), at..at + 1, true));
        assert!(evidence.by_gap.len() <= MAX_GAPS);
    }
}
