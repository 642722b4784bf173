//! What users mean by a name: of a process, a thread, a module, a function; and what they could have meant.

use rustc_hash::FxHashSet;
use uhr_model::{Dimension, Metric};

use crate::QueryError;
use crate::answers::Candidate;
use crate::command::Command;
use crate::names;
use crate::profile::Profile;
use crate::rollup::{function_totals, totals_by};

/// Which of the things `text` names: by an id, by the whole name, or by a part of it that only one name has.
pub(crate) fn named<'a>(
    text: &str,
    ids: impl Iterator<Item = [Option<u32>; 2]>,
    names: impl Iterator<Item = &'a str> + Clone,
) -> Option<Vec<bool>> {
    let found = |fits: Vec<bool>| fits.contains(&true).then_some(fits);
    let id: Option<u32> = text.parse().ok();
    found(ids.map(|ids| id.is_some() && ids.contains(&id)).collect())
        .or_else(|| found(names.clone().map(|name| names::is(name, text)).collect()))
        .or_else(|| {
            let parts: FxHashSet<&str> = names.clone().filter(|name| name.contains(text)).collect();
            (parts.len() == 1).then(|| names.map(|name| parts.contains(name)).collect())
        })
}

/// Candidates that an error names.
const CANDIDATES: usize = 10;

/// The functions that a user means: of exactly this name, of this name without its parameters, or the only name that
/// contains the text. One name in several modules is several functions, all of them meant.
pub(crate) fn functions(profile: &Profile, metric: Metric, text: &str) -> Result<FxHashSet<u32>, QueryError> {
    let code = &profile.code;
    let all = || code.functions.iter().enumerate();
    let ids = |fits: &dyn Fn(&str) -> bool| -> FxHashSet<u32> {
        all().filter(|(_, function)| fits(&function.name)).map(|(id, _)| id as u32).collect()
    };
    let exact = ids(&|name| names::is(name, text));
    if !exact.is_empty() {
        return Ok(exact);
    }
    let bare = ids(&|name| without_parameters(name) == Some(text));
    if !bare.is_empty() {
        return Ok(bare);
    }
    let parts = ids(&|name| !text.is_empty() && name.contains(text));
    let distinct: FxHashSet<&str> = parts.iter().map(|id| &*code.functions[*id as usize].name).collect();
    match distinct.len() {
        0 => {
            let lower = text.to_lowercase();
            let mut similar = ids(&|name| !text.is_empty() && name.to_lowercase().contains(&lower));
            if similar.is_empty() {
                similar = (0..code.functions.len() as u32).collect();
            }
            let candidates = function_candidates(profile, metric, &similar)?;
            let (name, recording) = (text.to_owned(), profile.path.clone());
            Err(QueryError::UnknownFunction { name, candidates, recording })
        }
        1 => Ok(parts),
        count => {
            let candidates = function_candidates(profile, metric, &parts)?;
            let next = candidates
                .first()
                .map(|best| Command::new("call-paths", &profile.path).with("function", &best.name).text());
            let (name, next) = (text.to_owned(), next.into_iter().collect());
            Err(QueryError::AmbiguousFunction { name, count, candidates, next })
        }
    }
}

/// A C++ name without its parameters, if it has any: `a::f(int) const` is also `a::f`.
fn without_parameters(name: &str) -> Option<&str> {
    let close = name.rfind(')')?;
    if name[close..].contains("::") {
        return None;
    }
    let mut depth = 0usize;
    for at in (0..=close).rev() {
        match name.as_bytes()[at] {
            b')' => depth += 1,
            b'(' if depth == 1 => return Some(&name[..at]).filter(|bare| !bare.is_empty()),
            b'(' => depth -= 1,
            _ => (),
        }
    }
    None
}

fn function_candidates(
    profile: &Profile,
    metric: Metric,
    wanted: &FxHashSet<u32>,
) -> Result<Vec<Candidate>, QueryError> {
    let (totals, all) = function_totals(profile, metric)?;
    let mut found: Vec<Candidate> = wanted
        .iter()
        .map(|&id| Candidate {
            name: names::shown(&profile.code.functions[id as usize].name, false).into_owned(),
            module: Some(names::shown(profile.code.module_of(id), false).into_owned()),
            total_share: crate::answers::share(totals[id as usize], all),
        })
        .collect();
    sort_candidates(&mut found);
    Ok(found)
}

fn sort_candidates(found: &mut Vec<Candidate>) {
    found.sort_by(|a, b| {
        b.total_share.total_cmp(&a.total_share).then_with(|| (&a.name, &a.module).cmp(&(&b.name, &b.module)))
    });
    found.truncate(CANDIDATES);
}

/// The error for a process, thread or module that is not there, with the largest that are.
pub(crate) fn unknown(profile: &Profile, metric: Metric, what: Dimension, text: &str) -> QueryError {
    let mut candidates = match totals_by(profile, metric, what) {
        Ok(candidates) => candidates,
        Err(error) => return error,
    };
    // What the text is a part of was more likely meant than what is merely large.
    let parts: Vec<Candidate> = candidates.iter().filter(|one| one.name.contains(text)).cloned().collect();
    if !parts.is_empty() {
        candidates = parts;
    }
    sort_candidates(&mut candidates);
    QueryError::UnknownName { what, name: text.to_owned(), candidates, recording: profile.path.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_cpp_names() {
        let cases = [
            ("f(int)", Some("f")),
            ("a::f(int, std::function<void (int)>) const", Some("a::f")),
            ("(anonymous namespace)::f(int)", Some("(anonymous namespace)::f")),
            ("(anonymous namespace)::f", None),
            ("operator()(int)", Some("operator()")),
            ("f(int) [clone .cold]", Some("f")),
            ("main", None),
            ("(x)", None),
        ];
        for (name, bare) in cases {
            assert_eq!(without_parameters(name), bare, "{name}");
        }
    }

    #[test]
    fn ids_come_before_names_and_parts() {
        let names = ["worker", "worker-2", "7"];
        let ids = || [7, 8, 9].map(|id| [Some(id), None]).into_iter();
        let fits = |text: &str| named(text, ids(), names.iter().copied());
        assert_eq!(fits("7"), Some(vec![true, false, false]));
        assert_eq!(fits("worker"), Some(vec![true, false, false]));
        assert_eq!(fits("-2"), Some(vec![false, true, false]));
        assert_eq!(fits("work"), None, "two names have it");
    }
}
