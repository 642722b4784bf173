//! Whole stacks of a selection, for flame graphs and collapsed text. The first frame is the program's name.

use rustc_hash::FxHashMap;
use uhr_model::{Dimension, FrameMode};

use crate::QueryError;
use crate::answers::{
    Coverage, ExportAnswer, ExportRequest, FlamegraphAnswer, FlamegraphRequest, MetricTotal,
    RecordingSummary, Written,
};
use crate::call_tree::CallTree;
use crate::caption::{subtitle, title};
use crate::cells::{By, Cells, Owner};
use crate::collapsed::{Collapsed, NO_STACK};
use crate::command::Command;
use crate::coverage::coverage;
use crate::filter::Filters;
use crate::flamegraph::{Drawn, FlameTree, NodeId};
use crate::group::{GroupBy, MARKERS, SampleKey, SampleKeys};
use crate::profile::Profile;
use crate::question::Question;
use crate::rollup::{Amount, node_sums, sums_by_key_and_node};
use crate::select::Selection;
use crate::window::Slots;

/// Everything that a flame graph needs but the place to write it to.
#[derive(Debug)]
pub struct Picture {
    /// The stacks, or with `inverted` the leaves at the root.
    pub tree: FlameTree,
    /// The heading.
    pub title: String,
    /// What was recorded and how.
    pub subtitle: String,
    /// Unit of the tree's values.
    pub unit: &'static str,
    /// How far the picture can be trusted.
    pub notes: Vec<String>,
    answer: Asked,
}

/// The stacks of a selection as text.
#[derive(Debug)]
pub struct CollapsedStacks {
    /// The stacks.
    pub stacks: Collapsed,
    /// How many different ones.
    pub lines: u64,
    answer: Asked,
}

/// What both answers begin with.
#[derive(Debug)]
struct Asked {
    recording: RecordingSummary,
    metric: MetricTotal,
    filters: Filters,
    idle: bool,
    coverage: Coverage,
    inverted: bool,
    next: Vec<String>,
}

impl Picture {
    /// The answer, once the picture is written.
    pub fn into_answer(self, path: &str, drawn: &Drawn) -> FlamegraphAnswer {
        let answer = self.answer;
        FlamegraphAnswer {
            schema: "uhr.flamegraph/1",
            ok: true,
            recording: answer.recording,
            request: FlamegraphRequest {
                metric: answer.metric.name.clone(),
                filters: answer.filters,
                idle: answer.idle,
                inverted: answer.inverted,
            },
            metric: answer.metric,
            written: Written {
                path: path.to_owned(),
                frames: drawn.frames as u64,
                hidden: drawn.hidden as u64,
                hidden_share: crate::answers::rounded(drawn.hidden_share),
            },
            coverage: answer.coverage,
            next: answer.next,
        }
    }
}

impl CollapsedStacks {
    /// The answer, once the text is written.
    pub fn into_answer(self, path: &str) -> ExportAnswer {
        let answer = self.answer;
        ExportAnswer {
            schema: "uhr.export/1",
            ok: true,
            recording: answer.recording,
            request: ExportRequest {
                format: "collapsed".to_owned(),
                metric: answer.metric.name.clone(),
                filters: answer.filters,
                idle: answer.idle,
            },
            metric: answer.metric,
            written: Written { path: path.to_owned(), frames: self.lines, hidden: 0, hidden_share: 0.0 },
            coverage: answer.coverage,
            next: answer.next,
        }
    }
}

/// The stacks of a selection as a tree to draw.
///
/// # Errors
/// [`QueryError`]: a filter does not fit, or the recording is damaged.
pub fn flame_tree(profile: &Profile, question: &Question, inverted: bool) -> Result<Picture, QueryError> {
    let stacks = Stacks::new(profile, question)?;
    let tree = if inverted { stacks.inverted() } else { stacks.upright() };
    let answer = stacks.asked(inverted);
    Ok(Picture {
        tree,
        title: title(question.metric, &stacks.commands()),
        subtitle: subtitle(profile, question),
        unit: question.metric.unit(),
        notes: answer.coverage.notes.clone(),
        answer,
    })
}

/// The stacks of a selection as collapsed text, in the metric's unit.
///
/// # Errors
/// [`QueryError`]: a filter does not fit, or the recording is damaged.
pub fn collapsed(profile: &Profile, question: &Question) -> Result<CollapsedStacks, QueryError> {
    let stacks = Stacks::new(profile, question)?;
    let (mut text, mut lines) = (Collapsed::new(), 0);
    for leaf in stacks.leaves() {
        let names = leaf.path.iter().map(|&function| &*profile.code.functions[function as usize].name);
        let frames: Vec<&str> = [leaf.command].into_iter().chain(names).chain(leaf.marker).collect();
        text.add(&frames, leaf.amount.weight);
        lines += 1;
    }
    Ok(CollapsedStacks { stacks: text, lines, answer: stacks.asked(false) })
}

/// A selection by program and call path.
struct Stacks<'a> {
    profile: &'a Profile,
    question: &'a Question,
    tree: CallTree,
    /// For each program, what its stacks have: by node of the call tree, or by kind of missing stack.
    by_command: Vec<(&'a str, Vec<(Leaf, Amount)>)>,
    total: Amount,
    metric: MetricTotal,
    coverage: Coverage,
}

/// Where a sample ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Leaf {
    /// In a node of the call tree.
    Node(u32),
    /// Nowhere: a number of [`crate::group::FrameKeys::without_frame`].
    Frameless(u32),
}

/// A call path and what it has.
struct LeafPath<'a> {
    command: &'a str,
    path: Vec<u32>,
    marker: Option<&'static str>,
    amount: Amount,
}

impl<'a> Stacks<'a> {
    fn new(profile: &'a Profile, question: &'a Question) -> Result<Self, QueryError> {
        if !question.metric.has_stacks() {
            let (dimension, metric, recording) = (Dimension::Function, question.metric, profile.path.clone());
            return Err(QueryError::DimensionNotOfMetric { dimension, metric, recording });
        }
        let selection = Selection::new(profile, question.metric, &question.filters)?
            .hiding_idle(question.hides_idle(false));
        let (slots, owner) = (Slots::blocks(selection.range), selection.owner(Owner::Process));
        let by = By { slots, owner, details: question.filters.details() };
        let cells = profile.cells(question.metric, by)?;
        let sums = node_sums(profile, &cells, &selection);
        let tree = CallTree::down(profile, &selection, &sums, None);
        let mut total = Amount::default();
        sums.iter().for_each(|amount| total.add(*amount));
        let by_command = by_command(profile, &cells, &selection, &tree);
        let coverage = coverage(profile, question.metric, &question.filters, &cells, &selection);
        let metric = question.total(total, selection.hidden(&cells));
        Ok(Self { profile, question, tree, by_command, total, metric, coverage })
    }

    /// The programs, the one that cost most first.
    fn commands(&self) -> Vec<&'a str> {
        let cost = |leaves: &[(Leaf, Amount)]| {
            leaves.iter().map(|(_, amount)| amount.weight).fold(0, u64::saturating_add)
        };
        let mut all: Vec<_> =
            self.by_command.iter().map(|(command, leaves)| (cost(leaves), *command)).collect();
        // Stable: those that cost the same stay in the order of their names.
        all.sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
        all.into_iter().map(|(_, command)| command).collect()
    }

    fn leaves(&self) -> impl Iterator<Item = LeafPath<'a>> {
        self.by_command.iter().flat_map(move |(command, leaves)| {
            leaves.iter().map(move |(leaf, amount)| match leaf {
                Leaf::Node(node) => {
                    LeafPath { command, path: self.tree.path(*node), marker: None, amount: *amount }
                }
                Leaf::Frameless(key) => {
                    LeafPath { command, path: Vec::new(), marker: Some(marker(*key)), amount: *amount }
                }
            })
        })
    }

    /// The tree's root stands for the only program, or for all; then each is a node of its own.
    fn root(&self) -> (FlameTree, bool) {
        match self.by_command.as_slice() {
            [(command, _)] => (FlameTree::new(command), true),
            _ => (FlameTree::new("all"), false),
        }
    }

    fn upright(&self) -> FlameTree {
        let (mut flame, is_only) = self.root();
        let modes = modes(self.profile);
        for (command, leaves) in &self.by_command {
            let start = match is_only {
                true => flame.root(),
                false => {
                    let function = flame.function(command, None, None);
                    flame.child(flame.root(), function)
                }
            };
            let mut known: FxHashMap<u32, NodeId> = FxHashMap::from_iter([(0, start)]);
            for (leaf, amount) in leaves {
                let at = match leaf {
                    Leaf::Node(node) => self.draw(&mut flame, &mut known, &modes, *node, start),
                    Leaf::Frameless(key) => {
                        let function = flame.function(marker(*key), None, None);
                        flame.child(start, function)
                    }
                };
                flame.add(at, amount.weight, amount.samples);
            }
        }
        flame
    }

    /// The flame's node of a node of the call tree; those on the way to it are drawn first.
    fn draw(
        &self,
        flame: &mut FlameTree,
        known: &mut FxHashMap<u32, NodeId>,
        modes: &[Option<FrameMode>],
        node: u32,
        start: NodeId,
    ) -> NodeId {
        let mut missing = Vec::new();
        let mut at = node;
        while !known.contains_key(&at) {
            missing.push(at);
            at = self.tree.parent[at as usize];
        }
        let mut drawn = known.get(&at).copied().unwrap_or(start);
        for node in missing.into_iter().rev() {
            drawn = self.draw_function(flame, modes, drawn, self.tree.function[node as usize]);
            known.insert(node, drawn);
        }
        drawn
    }

    fn draw_function(
        &self,
        flame: &mut FlameTree,
        modes: &[Option<FrameMode>],
        below: NodeId,
        function: u32,
    ) -> NodeId {
        let code = &self.profile.code;
        let name = &code.functions[function as usize].name;
        let mode = modes[function as usize];
        let id = flame.function(name, mode.map(|_| code.module_of(function)), mode);
        flame.child(below, id)
    }

    /// Leaves at the root, callers above them, programs at the tips.
    fn inverted(&self) -> FlameTree {
        let (mut flame, is_only) = self.root();
        let modes = modes(self.profile);
        for leaf in self.leaves() {
            let mut at = flame.root();
            if let Some(marker) = leaf.marker {
                let function = flame.function(marker, None, None);
                at = flame.child(at, function);
            }
            for &function in leaf.path.iter().rev() {
                at = self.draw_function(&mut flame, &modes, at, function);
            }
            if !is_only {
                let function = flame.function(leaf.command, None, None);
                at = flame.child(at, function);
            }
            flame.add(at, leaf.amount.weight, leaf.amount.samples);
        }
        flame
    }

    fn asked(&self, inverted: bool) -> Asked {
        Asked {
            recording: self.profile.summary(),
            metric: self.metric.clone(),
            filters: self.question.filters.clone(),
            idle: self.question.idle,
            coverage: self.coverage.clone(),
            inverted,
            next: match self.total == Amount::default() {
                true => vec![Command::new("overview", &self.profile.path).text()],
                false => {
                    vec![self.question.command("query", self.profile).with("group-by", "function").text()]
                }
            },
        }
    }
}

fn by_command<'a>(
    profile: &'a Profile,
    cells: &Cells,
    selection: &Selection,
    tree: &CallTree,
) -> Vec<(&'a str, Vec<(Leaf, Amount)>)> {
    // Markers belong to their program here: with a half for frames they do not stand for themselves.
    let group = GroupBy::of(&[Dimension::Command, Dimension::Function]);
    let keys = SampleKeys::new(profile, &group, cells, selection);
    let nodes = profile.tree.len();
    let mut found = Vec::new();
    for (key, sums) in sums_by_key_and_node(profile, cells, selection, &keys) {
        let SampleKey::Like { thread, .. } = keys.keys[key as usize] else { continue };
        let mut leaves: FxHashMap<Leaf, Amount> = FxHashMap::default();
        for (node, amount) in sums {
            let leaf = match (node as usize) < nodes {
                true => Leaf::Node(tree.of_node(node)),
                false => Leaf::Frameless(u32::MAX - node),
            };
            leaves.entry(leaf).or_default().add(amount);
        }
        let mut leaves: Vec<_> = leaves.into_iter().collect();
        leaves.sort_unstable_by_key(|(leaf, _)| *leaf);
        found.push((profile.owners.process_of(thread as usize).name.as_str(), leaves));
    }
    found.sort_by_key(|(command, _)| *command);
    found
}

fn marker(key: u32) -> &'static str {
    let ending = (key as usize).checked_sub(1).and_then(|at| MARKERS.get(at));
    ending.and_then(|ending| ending.row_key()).unwrap_or(NO_STACK)
}

/// What kind of code each function is.
fn modes(profile: &Profile) -> Vec<Option<FrameMode>> {
    let mut modes = vec![None; profile.code.functions.len()];
    for location in profile.code.locations.iter().filter(|one| one.mode != FrameMode::LeftOut) {
        modes[location.function as usize].get_or_insert(location.mode);
    }
    modes
}
