//! `uhr call-paths --wakers`: what ended waits, followed back: who woke the waker, and who woke that.

use rustc_hash::FxHashMap;
use uhr_model::{FrameMode, Metric, WaitKind};

use crate::QueryError;
use crate::answers::{KeyValue, Shown, WakerChain, WakerChainsAnswer, WakerChainsRequest, share};
use crate::cells::{By, Cells, Details, Owner, WakerDetail};
use crate::command::Command;
use crate::coverage::coverage;
use crate::membership::{Membership, ROWS_AT_ONCE, Tally};
use crate::names::shown;
use crate::profile::Profile;
use crate::query::not_woken;
use crate::question::Question;
use crate::rollup::Amount;
use crate::select::Selection;
use crate::statistics::Interval;
use crate::window::Slots;
use crate::words::compare_values;

/// Wakers of a chain that are told apart: two threads that wake each other would otherwise fill a page with one row.
const HOPS: usize = 4;

/// Answers who ended the waits of a selection, and who had woken those.
///
/// # Errors
/// [`QueryError`]: a filter does not fit, or the recording is damaged.
pub fn waker_chains(profile: &Profile, question: &Question) -> Result<WakerChainsAnswer, QueryError> {
    let question = &Question { metric: Metric::OffCpu, ..question.clone() };
    let selection =
        Selection::new(profile, question.metric, &question.filters)?.hiding_idle(question.hides_idle(false));
    let slots = Slots::blocks(selection.range);
    let chains = Details { waker: WakerDetail::Chain, ..Details::default() };
    let details = question.filters.details().and(chains);
    let cells = profile.cells(question.metric, By { slots, owner: Owner::Thread, details })?;
    let hops = if question.whole_names { usize::MAX } else { HOPS };
    let found = Chains::new(profile, &cells, &selection, hops);
    let page = found.page(profile, question);
    let keys: Vec<u32> = page.iter().map(|row| row.0).collect();
    let intervals = found.intervals(profile, &cells, &selection, &keys);
    let most = found.mostly(profile, &cells, &selection, &keys);
    let rows: Vec<WakerChain> = page
        .into_iter()
        .zip(intervals)
        .zip(most)
        .map(|(((key, waiter, woken_by), interval), (wait, function))| {
            let sum = found.sums[key as usize];
            WakerChain {
                waiter,
                woken_by,
                is_cut: found.keys[key as usize].is_cut,
                wait,
                waker_function: function.map(|function| {
                    let name = &profile.code.functions[function as usize].name;
                    shown(name, question.whole_names).into_owned()
                }),
                own: sum.weight,
                self_share: share(sum.weight, found.total.weight),
                self_samples: sum.samples,
                self_share_ci95: interval.ends,
                interval_note: interval.note,
            }
        })
        .collect();
    let mut coverage = coverage(profile, question.metric, &question.filters, &cells, &selection);
    coverage.notes.extend(not_woken(profile, &cells, &selection, found.total));
    let own = rows.iter().map(|row| row.own).fold(0, u64::saturating_add);
    let shown = Shown {
        rows: rows.len() as u64,
        of: found.rows.len() as u64,
        self_share: share(own, found.total.weight),
        more: question.more(command(profile, question), rows.len(), found.rows.len()),
    };
    Ok(WakerChainsAnswer {
        schema: "uhr.waker-chains/1",
        ok: true,
        recording: profile.summary(),
        request: WakerChainsRequest {
            metric: question.metric.name().to_owned(),
            filters: question.filters.clone(),
            idle: question.idle,
            limit: question.limit as u64,
            offset: question.offset as u64,
        },
        metric: question.total(found.total, selection.hidden(&cells)),
        next: next(profile, question, &rows),
        rows,
        shown,
        coverage,
    })
}

/// The metric goes without saying.
fn command(profile: &Profile, question: &Question) -> Command {
    let command = Command::new("call-paths", &profile.path).flag("wakers");
    let command = if question.idle { command.flag("idle") } else { command };
    question.filters.repeat_in(command)
}

fn next(profile: &Profile, question: &Question, rows: &[WakerChain]) -> Vec<String> {
    if rows.is_empty() {
        return vec![Command::new("overview", &profile.path).text()];
    }
    let mut next = Vec::new();
    // What the first waker does itself, and what it waits for.
    let waker = rows.iter().find_map(|row| match row.woken_by.first() {
        Some(KeyValue::Thread { tid, .. }) => Some(tid.to_string()),
        _ => None,
    });
    if let Some(tid) = waker.filter(|_| question.filters.thread.is_empty()) {
        let command = Command::new("query", &profile.path).with("metric", "wall").with("thread", &tid);
        next.push(command.with("group-by", "function").text());
    }
    for by in ["waker", "function"] {
        next.push(question.command("query", profile).with("group-by", by).text());
    }
    next
}

/// A chain, and who waited at its beginning.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Chain {
    thread: u32,
    /// Rows of the wakers, each standing for all of the same thread or interrupt.
    woken_by: Vec<u32>,
    is_cut: bool,
}

/// The chains of a selection.
#[derive(Debug)]
struct Chains {
    keys: Vec<Chain>,
    sums: Vec<Amount>,
    /// Number of each cell's chain.
    of_cell: Vec<u32>,
    /// Numbers of the chains that have anything.
    rows: Vec<u32>,
    total: Amount,
}

impl Chains {
    fn new(profile: &Profile, cells: &Cells, selection: &Selection, hops: usize) -> Self {
        let mut keys: Vec<Chain> = Vec::new();
        let mut known: FxHashMap<(u32, Vec<u32>), u32> = FxHashMap::default();
        // A chain is followed once for each thread and waker, not for each cell.
        let mut near: FxHashMap<(u32, u32), u32> = FxHashMap::default();
        let mut number = |thread: u32, waker: u32| {
            *near.entry((thread, waker)).or_insert_with(|| {
                let mut chain = profile.wakers.chain(waker);
                let woken_by: Vec<u32> =
                    chain.by_ref().take(hops).map(|row| profile.wakers.who[row as usize]).collect();
                let is_cut = chain.next().is_some();
                let at = *known.entry((thread, woken_by.clone())).or_insert_with(|| {
                    keys.push(Chain { thread, woken_by, is_cut: false });
                    keys.len() as u32 - 1
                });
                keys[at as usize].is_cut |= is_cut;
                at
            })
        };
        let of_cell: Vec<u32> = (0..cells.len())
            .map(|cell| number(cells.thread[cell], cells.tags[cells.tag[cell] as usize].waker))
            .collect();
        let mut sums = vec![Amount::default(); keys.len()];
        let mut total = Amount::default();
        for cell in (0..cells.len()).filter(|cell| selection.has(cells, *cell)) {
            let amount = Amount { weight: cells.weight[cell], samples: u64::from(cells.count[cell]) };
            sums[of_cell[cell] as usize].add(amount);
            total.add(amount);
        }
        let rows = (0..keys.len() as u32).filter(|key| sums[*key as usize].weight > 0).collect();
        Self { keys, sums, of_cell, rows, total }
    }

    /// The chains that are shown, largest first and then by name, with who is in them.
    fn page(&self, profile: &Profile, question: &Question) -> Vec<(u32, KeyValue, Vec<KeyValue>)> {
        let owners = &profile.owners;
        let mut order = self.rows.clone();
        let weight = |key: u32| self.sums[key as usize].weight;
        let wanted = question.offset.saturating_add(question.limit).min(order.len());
        if wanted == 0 {
            return Vec::new();
        }
        let (_, &mut last, _) =
            order.select_nth_unstable_by_key(wanted - 1, |key| std::cmp::Reverse(weight(*key)));
        let last = weight(last);
        let in_words = |key: u32| {
            let chain = &self.keys[key as usize];
            let waker = |row: &u32| profile.wakers.key(*row, owners, question.whole_names);
            let waiter = owners.thread_key(chain.thread as usize, question.whole_names);
            (key, waiter, chain.woken_by.iter().map(waker).collect::<Vec<_>>())
        };
        let mut sorted: Vec<_> =
            self.rows.iter().copied().filter(|key| weight(*key) >= last).map(in_words).collect();
        sorted.sort_by(|a, b| {
            let by_waker =
                || a.2.iter().zip(&b.2).map(|(a, b)| compare_values(a, b)).find(|order| order.is_ne());
            weight(b.0)
                .cmp(&weight(a.0))
                .then_with(|| compare_values(&a.1, &b.1))
                .then_with(|| by_waker().unwrap_or(a.2.len().cmp(&b.2.len())))
                .then(a.0.cmp(&b.0))
        });
        sorted.into_iter().take(wanted).skip(question.offset).collect()
    }

    fn intervals(
        &self,
        profile: &Profile,
        cells: &Cells,
        selection: &Selection,
        keys: &[u32],
    ) -> Vec<Interval> {
        let mut intervals = Vec::with_capacity(keys.len());
        for chunk in keys.chunks(ROWS_AT_ONCE) {
            let mut bits = vec![0u64; self.keys.len()];
            chunk.iter().enumerate().for_each(|(at, key)| bits[*key as usize] |= 1 << at);
            let members = Membership::of_sample_keys(profile, bits);
            let of_cell = Some(self.of_cell.as_slice());
            let tally = Tally::count(cells, selection, &members, of_cell, chunk.len(), Metric::OffCpu);
            intervals.extend((0..chunk.len()).map(|row| tally.intervals(row)[0]));
        }
        intervals
    }

    /// For each of these chains, what was mostly waited for, and the function that the first waker mostly was in.
    fn mostly(
        &self,
        profile: &Profile,
        cells: &Cells,
        selection: &Selection,
        keys: &[u32],
    ) -> Vec<(&'static str, Option<u32>)> {
        let mut row_of_key = vec![None; self.keys.len()];
        keys.iter().enumerate().for_each(|(row, key)| row_of_key[*key as usize] = Some(row));
        let mut kinds: Vec<FxHashMap<u8, u64>> = vec![FxHashMap::default(); keys.len()];
        let mut functions: Vec<FxHashMap<u32, u64>> = vec![FxHashMap::default(); keys.len()];
        let at_work = at_work(profile);
        for cell in (0..cells.len()).filter(|cell| selection.has(cells, *cell)) {
            let Some(row) = row_of_key[self.of_cell[cell] as usize] else { continue };
            let tag = &cells.tags[cells.tag[cell] as usize];
            let add = |sum: &mut u64| *sum = sum.saturating_add(cells.weight[cell]);
            add(kinds[row].entry(tag.kind).or_default());
            let is_thread = tag.waker != 0 && profile.wakers.interrupt(tag.waker).is_none();
            if let Some(function) = at_work[tag.waker_node as usize].filter(|_| is_thread) {
                add(functions[row].entry(function).or_default());
            }
        }
        let name = |function: u32| &profile.code.functions[function as usize].name;
        let kind = |kinds: FxHashMap<u8, u64>| {
            let most = kinds.into_iter().max_by_key(|(kind, weight)| (*weight, std::cmp::Reverse(*kind)));
            most.and_then(|(kind, _)| WaitKind::from_code(kind)).unwrap_or(WaitKind::Unknown).name()
        };
        let function = |functions: FxHashMap<u32, u64>| {
            let most = functions.into_iter().max_by(|a, b| a.1.cmp(&b.1).then(name(b.0).cmp(name(a.0))));
            most.map(|(function, _)| function)
        };
        kinds.into_iter().map(kind).zip(functions.into_iter().map(function)).collect()
    }
}

/// For each node of the stack tree, the innermost function outside of the kernel and the C library; of the library,
/// where there is no other.
fn at_work(profile: &Profile) -> Vec<Option<u32>> {
    let (code, tree) = (&profile.code, &profile.tree);
    let is_libc: Vec<bool> = code
        .modules
        .iter()
        .map(|name| name.starts_with("libc.so") || name.starts_with("libpthread"))
        .collect();
    // The function, and whether it is the program's own.
    let mut found: Vec<Option<(u32, bool)>> = vec![None; tree.len()];
    for node in 1..tree.len() {
        let outer = found[tree.parent[node] as usize];
        let mut functions = code.of(tree.frame[node]).iter().filter(|one| one.mode != FrameMode::Kernel);
        found[node] = match functions.next().map(|one| one.function) {
            None => outer,
            Some(function) => {
                let is_own = !is_libc[code.functions[function as usize].module as usize];
                match outer {
                    Some((_, true)) if !is_own => outer,
                    _ => Some((function, is_own)),
                }
            }
        };
    }
    found.into_iter().map(|found| found.map(|(function, _)| function)).collect()
}
