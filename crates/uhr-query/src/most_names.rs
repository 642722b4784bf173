//! Names of mappings among the rows of an answer: the busiest have one each. A program can name thousands.

use rustc_hash::{FxHashMap, FxHashSet};
use uhr_model::Dimension;

use crate::cells::{Cells, MappingName, REGION, Tag};
use crate::group::GroupBy;
use crate::select::Selection;

/// Names of mappings that a grouping tells apart: those with the most page faults. The others are one row of each kind of memory.
const MOST_NAMES: usize = 100;

/// The circumstances, with the names of mappings that are not among those with the most page faults of the selection taken for
/// one of each kind of memory. `None`: all may stay as they are.
pub(crate) fn with_most_names_alone(
    group: &GroupBy,
    cells: &Cells,
    selection: &Selection,
) -> Option<Vec<Tag>> {
    if !group.has(Dimension::Mapping) {
        return None;
    }
    let mut weights: FxHashMap<MappingName, u64> = FxHashMap::default();
    // A name belongs to one kind of memory, as good as always.
    let mut of_kind: FxHashMap<u8, FxHashSet<MappingName>> = FxHashMap::default();
    for cell in (0..cells.len()).filter(|&cell| selection.has(cells, cell)) {
        let tag = &cells.tags[cells.tag[cell] as usize];
        if matches!(tag.mapping, MappingName::Row(_)) {
            let sum = weights.entry(tag.mapping).or_default();
            *sum = sum.saturating_add(cells.weight[cell]);
            of_kind.entry(tag.kind & REGION).or_default().insert(tag.mapping);
        }
    }
    let mut order: Vec<(u64, MappingName)> =
        weights.into_iter().map(|(name, weight)| (weight, name)).collect();
    order.sort_unstable_by_key(|&(weight, name)| (std::cmp::Reverse(weight), name));
    let own: FxHashSet<MappingName> = order.iter().take(MOST_NAMES).map(|&(_, name)| name).collect();
    if own.len() == order.len() {
        return None;
    }
    let others: FxHashMap<u8, u32> =
        of_kind.into_iter().map(|(kind, names)| (kind, names.difference(&own).count() as u32)).collect();
    let fold = |tag: &Tag| match others.get(&(tag.kind & REGION)) {
        Some(&count) if matches!(tag.mapping, MappingName::Row(_)) && !own.contains(&tag.mapping) => {
            Tag { mapping: MappingName::Other(count), ..*tag }
        }
        _ => *tag,
    };
    Some(cells.tags.iter().map(fold).collect())
}
