//! Filters applied: which threads, which stacks, and which part of each stack a question looks at.

use rustc_hash::FxHashSet;
use uhr_model::{Dimension, FrameMode, Metric, StackEnding};

use crate::QueryError;
use crate::cells::{Cells, Owner};
use crate::circumstances::Circumstances;
use crate::filter::Filters;
use crate::profile::{Location, Profile};
use crate::resolve::{functions, named, unknown};
use crate::rollup::Amount;
use crate::window::TimeRange;

/// What a question is about, resolved against a profile.
#[derive(Debug, Clone)]
pub(crate) struct Selection {
    pub(crate) range: TimeRange,
    /// Which threads, if not all.
    threads: Option<Vec<bool>>,
    /// Of each node's locations, how many of the innermost are part of the answer, if not all. Of a node above the
    /// outermost `--under` function: none.
    visible: Option<Vec<u32>>,
    /// Which nodes may be leaves, if not all.
    leaves: Option<Vec<bool>>,
    /// Whether time without a stack is part of it: never of a function, but hidden kernel time is of mode `kernel`.
    markers: Markers,
    circumstances: Circumstances,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Markers {
    All,
    Kernel,
    None,
}

impl Selection {
    /// Resolves the filters.
    pub(crate) fn new(profile: &Profile, metric: Metric, filters: &Filters) -> Result<Self, QueryError> {
        let range = TimeRange::of(profile, filters)?;
        let modes: Vec<FrameMode> = filters
            .mode
            .iter()
            .map(|mode| FrameMode::from_name(mode).ok_or_else(|| QueryError::UnknownMode(mode.clone())))
            .collect::<Result<_, _>>()?;
        let kernel_only = modes.iter().all(|mode| *mode == FrameMode::Kernel);
        let markers = match filters.stack_filter() {
            None => Markers::All,
            Some("mode") if kernel_only => Markers::Kernel,
            Some(_) => Markers::None,
        };
        let leaves = leaves(profile, metric, filters, &modes)?;
        let circumstances = Circumstances::new(profile, metric, filters)?;
        let threads = threads(profile, metric, filters)?;
        let mut selection = Self { range, threads, visible: None, leaves, markers, circumstances };
        for text in &filters.under {
            // Each counts on the whole stack; what is below all of them is visible.
            let visible = selection.visible.take();
            selection = selection.under(profile, &functions(profile, metric, text)?);
            if let (Some(before), Some(now)) = (visible, &mut selection.visible) {
                now.iter_mut().zip(before).for_each(|(now, before)| *now = (*now).min(before));
            }
        }
        selection.markers = markers;
        Ok(selection)
    }

    /// The whole recording.
    pub(crate) fn everything(profile: &Profile) -> Self {
        let range = TimeRange { start_ns: profile.start_ns(), end_ns: profile.end_ns, whole: true };
        let circumstances = Circumstances::default();
        Self { range, threads: None, visible: None, leaves: None, markers: Markers::All, circumstances }
    }

    /// Leaves waits for work out.
    pub(crate) fn hiding_idle(mut self, hides_idle: bool) -> Self {
        self.circumstances.hides_idle = hides_idle;
        self
    }

    /// What of the cells would be part of it, but is hidden.
    pub(crate) fn hidden(&self, cells: &Cells) -> Amount {
        let mut hidden = Amount::default();
        if !self.circumstances.hides_idle {
            return hidden;
        }
        let is_hidden: Vec<bool> =
            cells.tags.iter().map(|tag| tag.is_idle() && self.circumstances.pass_filters(tag)).collect();
        for cell in (0..cells.len()).filter(|cell| is_hidden[cells.tag[*cell] as usize]) {
            if self.has_thread(cells.thread[cell]) && self.has_stack(cells, cell) {
                hidden.add(Amount { weight: cells.weight[cell], samples: u64::from(cells.count[cell]) });
            }
        }
        hidden
    }

    /// Keeps only stacks that one of the functions is in, as far as they were visible.
    pub(crate) fn within(mut self, profile: &Profile, functions: &FxHashSet<u32>) -> Self {
        let below = self.below(profile, functions);
        self.leaves = Some((0..below.len()).map(|node| below[node] > 0 && self.may_be_leaf(node)).collect());
        self.markers = Markers::None;
        self
    }

    /// Keeps only what lies at or below the outermost visible call of one of the functions.
    pub(crate) fn under(mut self, profile: &Profile, functions: &FxHashSet<u32>) -> Self {
        let below = self.below(profile, functions);
        self.visible = Some(match self.visible.take() {
            None => below,
            Some(visible) => visible.into_iter().zip(below).map(|(a, b)| a.min(b)).collect(),
        });
        self.markers = Markers::None;
        self
    }

    /// For each node, how many of its innermost locations lie at or below the outermost visible call of one of the
    /// functions.
    pub(crate) fn below(&self, profile: &Profile, functions: &FxHashSet<u32>) -> Vec<u32> {
        let tree = &profile.tree;
        let mut below = vec![0u32; tree.len()];
        for node in 1..tree.len() {
            below[node] = if below[tree.parent[node] as usize] > 0 {
                u32::MAX
            } else {
                let locations = self.visible_locations(profile, node as u32);
                let outermost = locations.iter().rposition(|one| functions.contains(&one.function));
                outermost.map_or(0, |at| at as u32 + 1)
            };
        }
        below
    }

    /// Whether the thread is part of it.
    #[inline]
    pub(crate) fn has_thread(&self, thread: u32) -> bool {
        self.threads.as_ref().is_none_or(|threads| threads[thread as usize])
    }

    /// Whether a cell is part of it.
    #[inline]
    pub(crate) fn has(&self, cells: &Cells, cell: usize) -> bool {
        self.has_thread(cells.thread[cell])
            && self.circumstances.fit(&cells.tags[cells.tag[cell] as usize])
            && self.has_stack(cells, cell)
    }

    #[inline]
    fn has_stack(&self, cells: &Cells, cell: usize) -> bool {
        match cells.node[cell] {
            0 => match self.markers {
                Markers::All => true,
                Markers::Kernel => {
                    cells.tags[cells.tag[cell] as usize].ending == StackEnding::KernelNotVisible
                }
                Markers::None => false,
            },
            node => self.may_be_leaf(node as usize),
        }
    }

    #[inline]
    fn may_be_leaf(&self, node: usize) -> bool {
        self.leaves.as_ref().is_none_or(|leaves| leaves[node])
            && self.visible.as_ref().is_none_or(|visible| visible[node] > 0)
    }

    /// The locations of a node that are part of the answer, innermost first.
    #[inline]
    pub(crate) fn visible_locations<'a>(&self, profile: &'a Profile, node: u32) -> &'a [Location] {
        &profile.code.locations[self.visible_range(profile, node)]
    }

    /// Where [`Selection::visible_locations`] stands in the profile's locations.
    #[inline]
    pub(crate) fn visible_range(&self, profile: &Profile, node: u32) -> std::ops::Range<usize> {
        let range = profile.code.range(profile.tree.frame[node as usize]);
        match &self.visible {
            None => range,
            Some(visible) => {
                range.start..range.end.min(range.start.saturating_add(visible[node as usize] as usize))
            }
        }
    }

    /// Whose observations it needs to tell apart, if `group` asks for no more.
    pub(crate) fn owner(&self, group: Owner) -> Owner {
        if self.has_thread_filter() { Owner::Thread } else { group }
    }

    /// Whether some threads are left out.
    pub(crate) fn has_thread_filter(&self) -> bool {
        self.threads.is_some()
    }
}

fn threads(profile: &Profile, metric: Metric, filters: &Filters) -> Result<Option<Vec<bool>>, QueryError> {
    if filters.process.is_empty() && filters.thread.is_empty() {
        return Ok(None);
    }
    let owners = &profile.owners;
    let mut keep = vec![true; owners.threads.len()];
    for text in &filters.process {
        let ids = owners.processes.iter().map(|one| [Some(one.pid), one.inner_pid]);
        let names = owners.processes.iter().map(|one| one.name.as_str());
        let fits =
            named(text, ids, names).ok_or_else(|| unknown(profile, metric, Dimension::Process, text))?;
        keep.iter_mut()
            .zip(&owners.threads)
            .for_each(|(keep, thread)| *keep &= fits[thread.process as usize]);
    }
    for text in &filters.thread {
        let ids = owners.threads.iter().map(|one| [Some(one.tid), None]);
        let names = owners.threads.iter().map(|one| one.name.as_str());
        let fits =
            named(text, ids, names).ok_or_else(|| unknown(profile, metric, Dimension::Thread, text))?;
        keep.iter_mut().zip(fits).for_each(|(keep, fits)| *keep &= fits);
    }
    Ok(Some(keep))
}

fn leaves(
    profile: &Profile,
    metric: Metric,
    filters: &Filters,
    modes: &[FrameMode],
) -> Result<Option<Vec<bool>>, QueryError> {
    if filters.function.is_empty() && filters.module.is_empty() && modes.is_empty() {
        return Ok(None);
    }
    let (code, tree) = (&profile.code, &profile.tree);
    let wanted = filters.function.iter().map(|text| functions(profile, metric, text));
    let wanted = wanted.collect::<Result<Vec<_>, _>>()?;
    let modules = filters.module.iter().map(|text| {
        let names = code.modules.iter().map(|name| &**name);
        named(text, names.clone().map(|_| [None, None]), names)
            .ok_or_else(|| unknown(profile, metric, Dimension::Module, text))
    });
    let modules = modules.collect::<Result<Vec<_>, _>>()?;
    let mut leaves = vec![false; tree.len()];
    for node in 1..tree.len() {
        let Some(leaf) = code.of(tree.frame[node]).first() else { continue };
        let module = code.functions[leaf.function as usize].module as usize;
        leaves[node] = wanted.iter().all(|functions| functions.contains(&leaf.function))
            && modules.iter().all(|fits| fits[module])
            && modes.iter().all(|mode| leaf.mode == *mode);
    }
    Ok(Some(leaves))
}
