//! `uhr annotate`: what the lines or the instructions of a function cost.

mod instructions;
mod lines;
mod source;

use rustc_hash::FxHashSet;

use crate::QueryError;
use crate::answers::{AnnotateAnswer, AnnotateRequest, Annotated, Shown, SourceFile, View, share};
use crate::cells::{By, Cells, Owner};
use crate::command::Command;
use crate::coverage::coverage;
use crate::filter::Filters;
use crate::function_totals::function_totals;
use crate::group::GroupBy;
use crate::names::shown;
use crate::profile::Profile;
use crate::query::intervals;
use crate::question::Question;
use crate::resolve::functions;
use crate::rollup::{Amount, Grouped, Sums};
use crate::select::Selection;
use crate::statistics::Interval;
use crate::window::Slots;

pub use source::Source;
use source::Sources;

/// Answers what each line or each instruction of a function costs. `read` gives the text of a source file.
///
/// # Errors
/// [`QueryError`]: there is no such function, a filter does not fit, or the recording is damaged.
pub fn annotate(
    profile: &Profile,
    question: &Question,
    function: &str,
    view: View,
    read: &dyn Fn(&str) -> Source,
) -> Result<AnnotateAnswer, QueryError> {
    if !question.metric.has_stacks() {
        let (metric, recording) = (question.metric, profile.path.clone());
        return Err(QueryError::FilterNotOfMetric { filter: "function", metric, recording });
    }
    if view == View::Instructions {
        profile.machine_code()?;
    }
    let wanted = functions(profile, question.metric, function)?;
    let hides_idle = question.hides_idle(false);
    let all = Selection::new(profile, question.metric, &question.filters)?.hiding_idle(hides_idle);
    let (slots, owner) = (Slots::blocks(all.range), all.owner(Owner::Nobody));
    let by = By { slots, owner, details: question.filters.details() };
    let cells = profile.cells(question.metric, by)?;
    let within = all.clone().within(profile, &wanted);
    let asked = Asked { profile, question, function, view, wanted, cells: &cells, within };
    Ok(asked.answer(&all, Sources::new(read, profile.source_lines()?, question.whole_names)))
}

/// A question about a function.
struct Asked<'a> {
    profile: &'a Profile,
    question: &'a Question,
    /// As the user wrote it.
    function: &'a str,
    view: View,
    /// The functions that this means.
    wanted: FxHashSet<u32>,
    cells: &'a Cells,
    /// The stacks that they are in.
    within: Selection,
}

/// Rows of the function with a cost: those that are shown with their intervals, and how many there are.
struct Costly {
    page: Vec<(u32, Sums, [Interval; 2])>,
    of: usize,
}

/// What one of the two views shows.
struct Shape {
    rows: Annotated,
    costly: Costly,
    notes: Vec<String>,
    /// A function inlined into this one in which much of the time is.
    inlined: Option<String>,
}

impl Asked<'_> {
    fn answer(&self, all: &Selection, mut sources: Sources<'_>) -> AnnotateAnswer {
        let (profile, question) = (self.profile, self.question);
        let mut coverage = coverage(profile, question.metric, &question.filters, self.cells, all);
        let function = function_totals(profile, question, self.cells, all, &self.wanted);
        let group = GroupBy::of(match self.view {
            View::Lines => lines::DIMENSIONS,
            View::Instructions => instructions::DIMENSIONS,
        });
        let grouped = Grouped::new(profile, self.cells, &self.within, &group);
        let shape = match self.view {
            View::Lines => self.lines(&grouped, &group, &mut sources),
            View::Instructions => self.instructions(&grouped, &group, &mut sources),
        };
        if grouped.total == Amount::default() {
            coverage.notes.push("The function does not occur in this part of the recording.".to_owned());
        }
        if self.wanted.len() > 1 {
            let count = self.wanted.len();
            coverage.notes.push(format!("{count} functions have this name and are taken together."));
        }
        coverage.notes.extend(shape.notes);
        let own = shape.costly.page.iter().map(|row| row.1.own).fold(0, u64::saturating_add);
        let (rows, of) = (shape.costly.page.len(), shape.costly.of);
        AnnotateAnswer {
            schema: "uhr.annotate/1",
            ok: true,
            recording: profile.summary(),
            request: AnnotateRequest {
                function: self.function.to_owned(),
                view: self.view,
                metric: question.metric.name().to_owned(),
                filters: question.filters.clone(),
                idle: question.idle,
                limit: question.limit as u64,
                offset: question.offset as u64,
            },
            metric: question.total(grouped.total, self.within.hidden(self.cells)),
            function,
            sources: sources.into_files(),
            rows: shape.rows,
            shown: Shown {
                rows: rows as u64,
                of: of as u64,
                self_share: share(own, grouped.total.weight),
                more: question.more(self.command(self.function, self.view), rows, of),
            },
            coverage,
            next: self.next(grouped.total == Amount::default(), shape.inlined),
        }
    }

    /// The page of the rows whose keys are the function's, the costliest first.
    fn costly(&self, grouped: &Grouped, group: &GroupBy, is_of_function: impl Fn(u32) -> bool) -> Costly {
        let mut rows: Vec<(u32, u32, Sums)> =
            grouped.rows.iter().filter(|row| is_of_function(row.1)).copied().collect();
        let of = rows.len();
        // Equal ones in the order of their numbers, which are the same in every run.
        rows.sort_by_key(|row| (std::cmp::Reverse((row.2.total, row.2.own)), row.1));
        let page: Vec<_> = rows.into_iter().skip(self.question.offset).take(self.question.limit).collect();
        let (profile, question) = (self.profile, self.question);
        let intervals = intervals(profile, question, group, self.cells, &self.within, grouped, &page);
        let page = page.into_iter().zip(intervals).map(|(row, intervals)| (row.1, row.2, intervals));
        Costly { page: page.collect(), of }
    }

    fn name(&self, text: &str) -> String {
        shown(text, self.question.whole_names).into_owned()
    }

    fn command(&self, function: &str, view: View) -> Command {
        let command = self.question.command("annotate", self.profile).with("function", function);
        if view == View::Instructions { command.flag("asm") } else { command }
    }

    fn next(&self, is_empty: bool, inlined: Option<String>) -> Vec<String> {
        if is_empty {
            let overview = Command::new("overview", &self.profile.path).text();
            if self.question.filters.is_empty() {
                return vec![overview];
            }
            let whole = Question { filters: Filters::default(), ..self.question.clone() };
            return vec![
                whole.command("annotate", self.profile).with("function", self.function).text(),
                overview,
            ];
        }
        let other = if self.view == View::Lines { View::Instructions } else { View::Lines };
        let mut next = vec![self.command(self.function, other).text()];
        next.extend(inlined.map(|function| self.command(&function, View::Lines).text()));
        let paths = self.question.command("call-paths", self.profile).with("function", self.function);
        next.push(paths.flag("callers").text());
        next
    }
}

/// The rows of a source file, for the answer.
impl Sources<'_> {
    fn into_files(self) -> Vec<SourceFile> {
        self.files().map(|(file, absent)| SourceFile { file, absent }).collect()
    }
}
