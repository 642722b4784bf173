//! `uhr call-paths`: the whole paths through a function, or the tree of its callers or callees.

use rustc_hash::FxHashSet;

use crate::QueryError;
use crate::answers::{
    CallPathsAnswer, CallPathsRequest, Direction, Key, Omitted, PathRow, Paths, Shown, TreeRow, share,
};
use crate::call_tree::CallTree;
use crate::cells::{By, Cells, Owner};
use crate::command::Command;
use crate::coverage::coverage;
use crate::filter::Filters;
use crate::function_totals::{function_key, function_totals};
use crate::membership::{ROWS_AT_ONCE, Tally};
use crate::names::shown;
use crate::profile::Profile;
use crate::question::Question;
use crate::resolve::functions;
use crate::rollup::{Amount, node_sums};
use crate::select::Selection;
use crate::statistics::Interval;
use crate::window::Slots;

/// Nodes below this share of the function's total are left out of a tree.
const LEAST_SHARE: f64 = 0.005;

/// Functions of a long path that are shown: its first one, its last ones, and around the outermost call of the function
/// that was asked for its callers and callees. Ten paths of so many are a page.
const PATH_ENDS: (usize, usize) = (1, 3);
const AROUND: usize = 2;

/// Answers where a function is called from, and what it calls.
///
/// # Errors
/// [`QueryError`]: there is no such function, a filter does not fit, or the recording is damaged.
pub fn call_paths(
    profile: &Profile,
    question: &Question,
    function: &str,
    direction: Direction,
) -> Result<CallPathsAnswer, QueryError> {
    if !question.metric.has_stacks() {
        let (metric, recording) = (question.metric, profile.path.clone());
        return Err(QueryError::FilterNotOfMetric { filter: "function", metric, recording });
    }
    let wanted = functions(profile, question.metric, function)?;
    let hides_idle = question.hides_idle(false);
    let all = Selection::new(profile, question.metric, &question.filters)?.hiding_idle(hides_idle);
    let (slots, owner) = (Slots::blocks(all.range), all.owner(Owner::Nobody));
    let by = By { slots, owner, details: question.filters.details() };
    let cells = profile.cells(question.metric, by)?;
    let asked = Asked { profile, question, function, direction, wanted, cells: &cells };
    asked.answer(all)
}

/// A question about a function.
struct Asked<'a> {
    profile: &'a Profile,
    question: &'a Question,
    /// As the user wrote it.
    function: &'a str,
    direction: Direction,
    /// The functions that this means.
    wanted: FxHashSet<u32>,
    cells: &'a Cells,
}

impl Asked<'_> {
    fn answer(&self, all: Selection) -> Result<CallPathsAnswer, QueryError> {
        let (profile, question) = (self.profile, self.question);
        let function = function_totals(profile, question, self.cells, &all, &self.wanted);
        let mut coverage = coverage(profile, question.metric, &question.filters, self.cells, &all);
        let within = all.within(profile, &self.wanted);
        let sums = node_sums(profile, self.cells, &within);
        let hidden = within.hidden(self.cells);
        let mut total = Amount::default();
        sums.iter().for_each(|amount| total.add(*amount));
        if total == Amount::default() {
            coverage.notes.push("The function does not occur in this part of the recording.".to_owned());
        }
        if self.wanted.len() > 1 {
            coverage
                .notes
                .push(format!("{} functions have this name and are taken together.", self.wanted.len()));
        }
        let (rows, shown) = match self.direction {
            Direction::Paths => self.paths(&within, &sums, total),
            Direction::Callers => {
                let tree = CallTree::up(profile, &within, &self.wanted, &sums, self.root());
                self.tree(&within, &tree, total, &mut coverage.notes)
            }
            Direction::Callees => {
                let under = within.under(profile, &self.wanted);
                let tree = CallTree::down(profile, &under, &sums, Some(self.root()));
                self.tree(&under, &tree, total, &mut coverage.notes)
            }
        };
        Ok(CallPathsAnswer {
            schema: "uhr.call-paths/1",
            ok: true,
            recording: profile.summary(),
            request: CallPathsRequest {
                function: self.function.to_owned(),
                direction: self.direction,
                metric: question.metric.name().to_owned(),
                filters: question.filters.clone(),
                idle: question.idle,
                limit: question.limit as u64,
                offset: question.offset as u64,
            },
            metric: question.total(total, hidden),
            function,
            rows,
            shown,
            coverage,
            next: if total == Amount::default() { self.next_of_nothing() } else { self.next() },
        })
    }

    /// The function that stands for all that are meant.
    fn root(&self) -> u32 {
        self.wanted.iter().copied().min().unwrap_or(0)
    }

    fn key(&self, function: u32) -> Key {
        function_key(self.profile, self.question, self.cells, function)
    }

    fn name(&self, function: u32) -> String {
        shown(&self.profile.code.functions[function as usize].name, self.question.whole_names).into_owned()
    }

    /// The intervals of nodes: of what ends in them, and of what passes through them.
    fn intervals(&self, selection: &Selection, tree: &CallTree, nodes: &[u32]) -> Vec<[Interval; 2]> {
        let mut intervals = Vec::with_capacity(nodes.len());
        for chunk in nodes.chunks(ROWS_AT_ONCE) {
            let members = tree.members(self.profile, chunk);
            let tally =
                Tally::count(self.cells, selection, &members, None, chunk.len(), self.question.metric);
            intervals.extend((0..chunk.len()).map(|row| tally.intervals(row)));
        }
        intervals
    }

    fn shown(&self, rows: usize, of: usize, own: u64, total: Amount) -> Shown {
        let command = self.question.command("call-paths", self.profile).with("function", self.function);
        let command = match self.direction {
            Direction::Paths => command,
            Direction::Callers => command.flag("callers"),
            Direction::Callees => command.flag("callees"),
        };
        Shown {
            rows: rows as u64,
            of: of as u64,
            self_share: share(own, total.weight),
            more: self.question.more(command, rows, of),
        }
    }

    fn paths(&self, selection: &Selection, sums: &[Amount], total: Amount) -> (Paths, Shown) {
        let tree = CallTree::down(self.profile, selection, sums, None);
        let mut nodes: Vec<u32> = tree
            .preorder(self.profile, 0)
            .into_iter()
            .filter(|node| tree.own[*node as usize] != Amount::default())
            .collect();
        // A stable sort: equal paths stay in the order of the tree, which is by name.
        nodes.sort_by_key(|node| std::cmp::Reverse(tree.own[*node as usize].weight));
        let of = nodes.len();
        let nodes: Vec<u32> =
            nodes.into_iter().skip(self.question.offset).take(self.question.limit).collect();
        let intervals = self.intervals(selection, &tree, &nodes);
        let row = |(&node, intervals): (&u32, [Interval; 2])| {
            let own = tree.own[node as usize];
            let (path, omitted) = self.shortened(&tree.path(node));
            PathRow {
                path,
                omitted,
                own: own.weight,
                self_share: share(own.weight, total.weight),
                self_samples: own.samples,
                self_share_ci95: intervals[0].ends,
                interval_note: intervals[0].note,
            }
        };
        let rows: Vec<PathRow> = nodes.iter().zip(intervals).map(row).collect();
        let own = rows.iter().map(|row| row.own).fold(0, u64::saturating_add);
        let shown = self.shown(rows.len(), of, own, total);
        (Paths::Whole(rows), shown)
    }

    /// The names of a path without what is far from its ends and from the function, and what was left out.
    fn shortened(&self, path: &[u32]) -> (Vec<String>, Vec<Omitted>) {
        let asked = path.iter().position(|function| self.wanted.contains(function)).unwrap_or(0);
        let is_near = |at: usize| {
            self.question.whole_names
                || at < PATH_ENDS.0
                || at + PATH_ENDS.1 >= path.len()
                || at.abs_diff(asked) <= AROUND
        };
        let (mut names, mut omitted) = (Vec::new(), Vec::new());
        let mut at = 0;
        while at < path.len() {
            let gap = (at..path.len()).take_while(|&far| !is_near(far)).count();
            // A gap of one function says no less in less space.
            if gap > 1 {
                omitted.push(Omitted { after: names.len() as u64, functions: gap as u64 });
                at += gap;
            }
            names.push(self.name(path[at]));
            at += 1;
        }
        (names, omitted)
    }

    fn tree(
        &self,
        selection: &Selection,
        tree: &CallTree,
        total: Amount,
        notes: &mut Vec<String>,
    ) -> (Paths, Shown) {
        let least = ((total.weight as f64 * LEAST_SHARE) as u64).max(1);
        let order = tree.preorder(self.profile, least);
        let pruned = tree.parent.len() - 1 - order.len();
        if pruned > 0 {
            notes.push(format!("{pruned} nodes below 0.5 % of the function's total are left out."));
        }
        let of = order.len();
        // The largest nodes, shown in the order of the tree; a caller is never smaller than what it calls.
        let mut largest: Vec<(usize, u32)> = order.into_iter().enumerate().collect();
        largest.sort_by_key(|(_, node)| std::cmp::Reverse(tree.total[*node as usize].weight));
        let mut page: Vec<(usize, u32)> =
            largest.into_iter().skip(self.question.offset).take(self.question.limit).collect();
        page.sort_unstable();
        let nodes: Vec<u32> = page.into_iter().map(|(_, node)| node).collect();
        let (depths, intervals) = (tree.depths(), self.intervals(selection, tree, &nodes));
        let row = |(&node, intervals): (&u32, [Interval; 2])| {
            let (own, through) = (tree.own[node as usize], tree.total[node as usize]);
            TreeRow {
                depth: u64::from(depths[node as usize]),
                key: self.key(tree.function[node as usize]),
                own: own.weight,
                total: through.weight,
                self_share: share(own.weight, total.weight),
                total_share: share(through.weight, total.weight),
                total_samples: through.samples,
                total_share_ci95: intervals[1].ends,
                interval_note: intervals[1].note,
            }
        };
        let rows: Vec<TreeRow> = nodes.iter().zip(intervals).map(row).collect();
        let own = rows.iter().map(|row| row.own).fold(0, u64::saturating_add);
        let shown = self.shown(rows.len(), of, own, total);
        (Paths::Tree(rows), shown)
    }

    /// Where the function does not occur: in the whole recording it may.
    fn next_of_nothing(&self) -> Vec<String> {
        let overview = Command::new("overview", &self.profile.path).text();
        if self.question.filters.is_empty() {
            return vec![overview];
        }
        let whole = Question { filters: Filters::default(), ..self.question.clone() };
        vec![whole.command("call-paths", self.profile).with("function", self.function).text(), overview]
    }

    fn next(&self) -> Vec<String> {
        let command = || self.question.command("call-paths", self.profile).with("function", self.function);
        let under = self.question.command("query", self.profile).with("under", self.function);
        let mut next = vec![
            command().flag("callers").text(),
            command().flag("callees").text(),
            under.with("group-by", "function,line").text(),
        ];
        match self.direction {
            Direction::Paths => (),
            Direction::Callers => drop(next.remove(0)),
            Direction::Callees => drop(next.remove(1)),
        }
        next
    }
}
