//! From cells to rows: self and total of every key, in one pass over the cells and one over the stack tree.

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use uhr_model::{Dimension, Metric};

use crate::QueryError;
use crate::answers::{Candidate, KeyValue, share};
use crate::cells::{By, Cells};
use crate::flamegraph::quantity;
use crate::group::{FrameKey, FrameKeys, GroupBy, SampleKey, SampleKeys};
use crate::names::shown;
use crate::profile::Profile;
use crate::select::Selection;
use crate::window::Slots;
use crate::words::Words;

/// The sums of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sums {
    pub(crate) own: u64,
    pub(crate) total: u64,
    pub(crate) own_samples: u64,
    pub(crate) total_samples: u64,
}

/// A weight and the samples behind it. Sums stop at the largest number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Amount {
    pub(crate) weight: u64,
    pub(crate) samples: u64,
}

impl Amount {
    #[inline]
    pub(crate) fn add(&mut self, other: Self) {
        self.weight = self.weight.saturating_add(other.weight);
        self.samples = self.samples.saturating_add(other.samples);
    }

    fn is_zero(self) -> bool {
        self == Self::default()
    }
}

/// Rows before they are put in words.
#[derive(Debug)]
pub(crate) struct Grouped {
    pub(crate) samples: Option<SampleKeys>,
    pub(crate) frames: Option<FrameKeys>,
    /// Numbers of the sample half and of the frame half of each key (0 where it has none), and its sums.
    pub(crate) rows: Vec<(u32, u32, Sums)>,
    /// The whole selection.
    pub(crate) total: Amount,
}

impl Grouped {
    /// Groups the cells of a selection.
    pub(crate) fn new(profile: &Profile, cells: &Cells, selection: &Selection, group: &GroupBy) -> Self {
        let samples = group.has_samples().then(|| SampleKeys::new(profile, group, cells, selection));
        let frames = group.has_frames().then(|| FrameKeys::new(profile, group.dimensions()));
        let mut rows = Vec::new();
        let total = match (&samples, &frames) {
            (Some(samples), None) => {
                let sums =
                    sum_by(cells, selection, samples.keys.len(), |cell| samples.of_cell[cell] as usize);
                for (key, amount) in sums.iter().enumerate().filter(|(_, amount)| !amount.is_zero()) {
                    rows.push((key as u32, 0, Sums::default().with(*amount, *amount)));
                }
                sum(&sums)
            }
            (None, Some(frames)) => {
                let sums = node_sums(profile, cells, selection);
                let mut rollup = Rollup::new(profile, selection, frames);
                rollup.add(&sums);
                rollup.drain(|frame, sums| rows.push((0, frame, sums)));
                sum(&sums)
            }
            (Some(samples), Some(frames)) => {
                let mut rollup = Rollup::new(profile, selection, frames);
                let mut all = Amount::default();
                for (key, sums) in sums_by_key_and_node(profile, cells, selection, samples) {
                    sums.iter().for_each(|(_, amount)| all.add(*amount));
                    rollup.add_sparse(&sums);
                    rollup.drain(|frame, sums| rows.push((key, frame, sums)));
                }
                all
            }
            (None, None) => Amount::default(),
        };
        Self { samples, frames, rows, total }
    }

    /// The sample half of a row's key.
    pub(crate) fn sample_key(&self, row: &(u32, u32, Sums)) -> Option<SampleKey> {
        self.samples.as_ref().map(|keys| keys.keys[row.0 as usize])
    }

    /// The frame half of a row's key.
    pub(crate) fn frame_key(&self, row: &(u32, u32, Sums)) -> Option<FrameKey> {
        self.frames.as_ref().map(|keys| keys.keys[row.1 as usize])
    }
}

impl Sums {
    fn with(mut self, own: Amount, total: Amount) -> Self {
        self.own = self.own.saturating_add(own.weight);
        self.own_samples = self.own_samples.saturating_add(own.samples);
        self.total = self.total.saturating_add(total.weight);
        self.total_samples = self.total_samples.saturating_add(total.samples);
        self
    }
}

fn sum(sums: &[Amount]) -> Amount {
    let mut all = Amount::default();
    sums.iter().for_each(|amount| all.add(*amount));
    all
}

/// Sums of what is in the selection, by a dense number of each cell.
fn sum_by(
    cells: &Cells,
    selection: &Selection,
    numbers: usize,
    number: impl Fn(usize) -> usize + Sync,
) -> Vec<Amount> {
    let count = |range: std::ops::Range<usize>| {
        let mut sums = vec![Amount::default(); numbers];
        for cell in range.filter(|cell| selection.has(cells, *cell)) {
            let amount = Amount { weight: cells.weight[cell], samples: u64::from(cells.count[cell]) };
            sums[number(cell)].add(amount);
        }
        sums
    };
    let add = |mut a: Vec<Amount>, b: Vec<Amount>| {
        a.iter_mut().zip(b).for_each(|(a, b)| a.add(b));
        a
    };
    parts(cells.len()).into_par_iter().map(count).reduce(|| vec![Amount::default(); numbers], add)
}

/// Cells in as many ranges as there are threads: each gets sums of its own, which can be large.
pub(crate) fn parts(cells: usize) -> Vec<std::ops::Range<usize>> {
    let parts = rayon::current_num_threads().min(cells / 4096).max(1);
    (0..parts).map(|at| cells * at / parts..cells * (at + 1) / parts).collect()
}

/// Sums by leaf node. The entries behind the last node are those of time without a frame, in the order of
/// [`FrameKeys::without_frame`].
pub(crate) fn node_sums(profile: &Profile, cells: &Cells, selection: &Selection) -> Vec<Amount> {
    let nodes = profile.tree.len();
    sum_by(cells, selection, nodes + FRAMELESS, |cell| place(cells, cell, nodes))
}

/// Ways to have no frame.
const FRAMELESS: usize = 4;

/// For each sample key, the sums by leaf node in the order of nodes; time without a frame stands behind them: its
/// number counted down from the largest.
pub(crate) fn sums_by_key_and_node(
    profile: &Profile,
    cells: &Cells,
    selection: &Selection,
    keys: &SampleKeys,
) -> Vec<(u32, Vec<(u32, Amount)>)> {
    let nodes = profile.tree.len();
    // The cells of each key stand together: a counting sort.
    let mut first = vec![0usize; keys.keys.len() + 1];
    let selected = || (0..cells.len()).filter(|cell| selection.has(cells, *cell));
    selected().for_each(|cell| first[keys.of_cell[cell] as usize + 1] += 1);
    (0..keys.keys.len()).for_each(|key| first[key + 1] += first[key]);
    let mut next = first.clone();
    let mut order = vec![0u32; first.last().copied().unwrap_or(0)];
    for cell in selected() {
        let place = &mut next[keys.of_cell[cell] as usize];
        order[*place] = cell as u32;
        *place += 1;
    }
    let mut sums = vec![Amount::default(); nodes + FRAMELESS];
    let mut touched: Vec<u32> = Vec::new();
    let mut found = Vec::with_capacity(keys.keys.len());
    for key in (0..keys.keys.len()).filter(|key| first[*key] < first[*key + 1]) {
        for &cell in &order[first[key]..first[key + 1]] {
            let cell = cell as usize;
            let at = place(cells, cell, nodes);
            if sums[at].is_zero() {
                touched.push(at as u32);
            }
            sums[at].add(Amount { weight: cells.weight[cell], samples: u64::from(cells.count[cell]) });
        }
        touched.sort_unstable();
        touched.dedup();
        let take = |at: u32| {
            let number = if (at as usize) < nodes { at } else { u32::MAX - (at - nodes as u32) };
            (number, std::mem::take(&mut sums[at as usize]))
        };
        found.push((key as u32, touched.drain(..).map(take).collect()));
    }
    found
}

/// Where a cell's sum stands: its leaf node, or behind the nodes by its way to have no frame.
#[inline]
fn place(cells: &Cells, cell: usize, nodes: usize) -> usize {
    match cells.node[cell] {
        0 => nodes + FrameKeys::without_frame(cells.tags[cells.tag[cell] as usize].ending) as usize,
        node => node as usize,
    }
}

/// Rolls sums of leaves up to every key on their paths, each key once a path.
struct Rollup<'a> {
    profile: &'a Profile,
    selection: &'a Selection,
    frames: &'a FrameKeys,
    /// Sums by key, and the keys that have any.
    sums: Vec<Sums>,
    touched: Vec<u32>,
    /// How often each key is on the path at hand.
    active: Vec<u32>,
    /// Of each node: what ends in it, and what passes through it. Zero outside of a pass.
    own: Vec<Amount>,
    through: Vec<Amount>,
}

impl<'a> Rollup<'a> {
    fn new(profile: &'a Profile, selection: &'a Selection, frames: &'a FrameKeys) -> Self {
        Self {
            profile,
            selection,
            frames,
            sums: vec![Sums::default(); frames.keys.len()],
            touched: Vec::new(),
            active: vec![0; frames.keys.len()],
            own: vec![Amount::default(); profile.tree.len()],
            through: vec![Amount::default(); profile.tree.len()],
        }
    }

    /// Adds sums of all nodes, as [`node_sums`] returns them.
    fn add(&mut self, sums: &[Amount]) {
        let nodes = self.profile.tree.len();
        self.own.copy_from_slice(&sums[..nodes]);
        self.through.copy_from_slice(&sums[..nodes]);
        let all: Vec<u32> = (1..nodes as u32).collect();
        self.roll(&all);
        for (key, amount) in sums[nodes..].iter().enumerate() {
            self.count(key as u32, *amount, *amount);
        }
        self.own.fill(Amount::default());
        self.through.fill(Amount::default());
    }

    /// Adds sums of a few nodes, in the order of nodes.
    fn add_sparse(&mut self, sums: &[(u32, Amount)]) {
        let parent = &self.profile.tree.parent;
        let mut nodes = Vec::new();
        for &(node, amount) in sums {
            if node as usize >= parent.len() {
                self.count(u32::MAX - node, amount, amount);
                continue;
            }
            self.own[node as usize] = amount;
            let mut at = node;
            while at != 0 && self.through[at as usize].is_zero() {
                // Marks the node; what passes through it is counted below.
                self.through[at as usize].samples = 1;
                nodes.push(at);
                at = parent[at as usize];
            }
        }
        nodes.sort_unstable();
        nodes.iter().for_each(|&node| self.through[node as usize] = self.own[node as usize]);
        self.roll(&nodes);
        for node in nodes {
            self.own[node as usize] = Amount::default();
            self.through[node as usize] = Amount::default();
        }
        self.through[0] = Amount::default();
    }

    /// One pass from the leaves to the root, and one back that counts. `nodes` are in the order of the tree, callers
    /// included.
    fn roll(&mut self, nodes: &[u32]) {
        let tree = &self.profile.tree;
        for &node in nodes.iter().rev() {
            let amount = self.through[node as usize];
            self.through[tree.parent[node as usize] as usize].add(amount);
        }
        let mut path: Vec<u32> = Vec::new();
        for &node in nodes {
            if self.through[node as usize].is_zero() {
                continue;
            }
            while let Some(top) = path.pop_if(|top| tree.end[*top as usize] <= node) {
                for location in self.selection.visible_range(self.profile, top) {
                    self.active[self.frames.of_location[location] as usize] -= 1;
                }
            }
            path.push(node);
            for (depth, location) in self.selection.visible_range(self.profile, node).enumerate() {
                let key = self.frames.of_location[location];
                let own = if depth == 0 { self.own[node as usize] } else { Amount::default() };
                let is_first = self.active[key as usize] == 0;
                let total = if is_first { self.through[node as usize] } else { Amount::default() };
                self.count(key, own, total);
                self.active[key as usize] += 1;
            }
        }
        for node in path {
            for location in self.selection.visible_range(self.profile, node) {
                self.active[self.frames.of_location[location] as usize] -= 1;
            }
        }
    }

    fn count(&mut self, key: u32, own: Amount, total: Amount) {
        if own.is_zero() && total.is_zero() {
            return;
        }
        let sums = &mut self.sums[key as usize];
        if *sums == Sums::default() {
            self.touched.push(key);
        }
        *sums = sums.with(own, total);
    }

    /// Hands out the sums of every key that has any, and forgets them.
    fn drain(&mut self, mut row: impl FnMut(u32, Sums)) {
        for key in self.touched.drain(..) {
            row(key, std::mem::take(&mut self.sums[key as usize]));
        }
    }
}

/// The total of each function over the whole recording, and the sum over all: for candidates of an error.
pub(crate) fn function_totals(profile: &Profile, metric: Metric) -> Result<(Vec<u64>, u64), QueryError> {
    let mut totals = vec![0; profile.code.functions.len()];
    let (grouped, _) = everything_by(profile, metric, Dimension::Function)?;
    for row in &grouped.rows {
        if let Some(FrameKey::Like(location)) = grouped.frame_key(row) {
            totals[location.function as usize] = row.2.total;
        }
    }
    Ok((totals, grouped.total.weight))
}

/// The values of a dimension over the whole recording with their shares, in no order.
pub(crate) fn totals_by(
    profile: &Profile,
    metric: Metric,
    what: Dimension,
) -> Result<Vec<Candidate>, QueryError> {
    if metric == Metric::Resident {
        return Ok(Vec::new());
    }
    let (grouped, slots) = everything_by(profile, metric, what)?;
    let words = Words { profile, slots, whole_names: false };
    let candidate = |row: &(u32, u32, Sums)| {
        // Time without a stack has no name that one could mean.
        let is_like = matches!(grouped.sample_key(row), None | Some(SampleKey::Like { .. }))
            && matches!(grouped.frame_key(row), None | Some(FrameKey::Like(_)));
        if !is_like {
            return None;
        }
        let key = words.key(&[what], grouped.sample_key(row), grouped.frame_key(row));
        let name = match &key.0.first()?.1 {
            KeyValue::Process { start_s, .. } | KeyValue::Thread { start_s, .. } => {
                let value = &key.0.first()?.1;
                // Several of one id are told apart by when they began.
                let from = start_s.map(|start| format!(" from {}", quantity((start * 1e9) as u64, "ns")));
                format!("{value}{}", from.unwrap_or_default())
            }
            KeyValue::Waker { name: Some(name), .. } => shown(name, false).into_owned(),
            KeyValue::Interrupt { interrupt } => (*interrupt).to_owned(),
            KeyValue::Text(name) => shown(name, false).into_owned(),
            _ => return None,
        };
        Some(Candidate { name, module: None, total_share: share(row.2.total, grouped.total.weight) })
    };
    Ok(grouped.rows.iter().filter_map(candidate).collect())
}

fn everything_by(profile: &Profile, metric: Metric, what: Dimension) -> Result<(Grouped, Slots), QueryError> {
    let selection = Selection::everything(profile);
    let slots = Slots::blocks(selection.range);
    let group = GroupBy::of(&[what]);
    let cells = profile.cells(metric, By { slots, owner: group.owner(), details: group.details() })?;
    Ok((Grouped::new(profile, &cells, &selection, &group), slots))
}
