//! What a function has of a selection: how `call-paths` and `annotate` begin.

use rustc_hash::FxHashSet;
use uhr_model::Dimension;

use crate::answers::{FunctionTotals, Key, share};
use crate::cells::Cells;
use crate::group::FrameKey;
use crate::membership::{Membership, Tally};
use crate::profile::{Location, Profile};
use crate::question::Question;
use crate::rollup::{Amount, node_sums};
use crate::select::Selection;
use crate::words::Words;

/// The totals of functions that a user means together.
pub(crate) fn function_totals(
    profile: &Profile,
    question: &Question,
    cells: &Cells,
    all: &Selection,
    wanted: &FxHashSet<u32>,
) -> FunctionTotals {
    let sums = node_sums(profile, cells, all);
    let below = all.below(profile, wanted);
    let (mut whole, mut own, mut total) = (Amount::default(), Amount::default(), Amount::default());
    let mut members = Membership::none(profile);
    sums.iter().for_each(|amount| whole.add(*amount));
    for node in 1..profile.tree.len() {
        if below[node] == 0 {
            continue;
        }
        total.add(sums[node]);
        members.total[node] = 1;
        let leaf = all.visible_locations(profile, node as u32).first();
        if leaf.is_some_and(|leaf| wanted.contains(&leaf.function)) {
            own.add(sums[node]);
        }
    }
    let tally = Tally::count(cells, all, &members, None, 1, question.metric);
    let [_, interval] = tally.intervals(0);
    FunctionTotals {
        key: function_key(profile, question, cells, wanted.iter().copied().min().unwrap_or(0)),
        own: own.weight,
        total: total.weight,
        self_share: share(own.weight, whole.weight),
        total_share: share(total.weight, whole.weight),
        total_share_ci95: interval.ends,
        interval_note: interval.note,
    }
}

/// A function and its module.
pub(crate) fn function_key(profile: &Profile, question: &Question, cells: &Cells, function: u32) -> Key {
    let words = Words { profile, slots: cells.slots, whole_names: question.whole_names };
    words.key(&[Dimension::Function], None, Some(FrameKey::Like(Location::of_function(function))))
}
