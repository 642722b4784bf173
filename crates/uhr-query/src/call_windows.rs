//! Where system calls were not counted all the time, the windows in which they were, and what those say about the rest.

use uhr_recording::tables::{SyscallWindows, Syscalls};

use crate::QueryError;
use crate::flamegraph::quantity;
use crate::profile::Profile;
use crate::statistics::ratio;
use crate::window::TimeRange;

/// The windows that lie in a part of a recording.
#[derive(Debug)]
pub(crate) struct CallWindows {
    /// In order.
    windows: Vec<Window>,
    length_ns: u64,
}

/// A window, and the time that it stands for: half of that to the one before, half of that to the one behind.
#[derive(Debug, Clone, Copy)]
struct Window {
    start_ns: u64,
    open_ns: u64,
    stands_for_ns: u64,
}

impl Window {
    /// How much that was counted in it stands for.
    fn scaled(self, counted: u64) -> u64 {
        (counted as f64 * self.stands_for_ns as f64 / self.open_ns as f64).round() as u64
    }
}

/// The fewest windows that say how far to trust their sum.
const FEWEST: usize = 5;

impl CallWindows {
    /// Those that closed in `range`; `None` where calls were counted all the time.
    pub(crate) fn of(profile: &Profile, range: TimeRange) -> Result<Option<Self>, QueryError> {
        if profile.manifest.settings.syscalls.as_deref() != Some("windows") {
            return Ok(None);
        }
        const COLUMNS: &[&str] = &["start_ns", "end_ns"];
        let parts = profile.observations.read(COLUMNS, |rows: &SyscallWindows, at| {
            if rows.start_ns.len() != rows.end_ns.len() {
                return Err(QueryError::Damaged("syscall_windows lacks a column".to_owned()));
            }
            let windows = at.map(|row| (rows.start_ns[row], rows.end_ns[row]));
            let is_in =
                |end: u64| range.whole || (range.start_ns..range.end_ns).contains(&end.saturating_sub(1));
            Ok(windows.filter(|(start, end)| start < end && is_in(*end)).collect::<Vec<_>>())
        })?;
        let mut windows = parts.concat();
        windows.sort_unstable();
        Ok(Some(Self { windows: standing_for(&windows, range), length_ns: range.length_ns() }))
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }

    /// The window that something was counted in.
    fn at(&self, time_ns: u64) -> Option<usize> {
        self.windows.partition_point(|window| window.start_ns <= time_ns).checked_sub(1)
    }

    /// How much that was counted at this time stands for.
    pub(crate) fn scaled(&self, counted: u64, time_ns: u64) -> u64 {
        self.at(time_ns).map_or(0, |at| self.windows[at].scaled(counted))
    }

    /// What an answer says about them.
    pub(crate) fn note(&self, profile: &Profile) -> Result<String, QueryError> {
        let count = self.windows.len();
        if count == 0 {
            return Ok(
                "System calls were counted in short windows, and none of them fell into this part of the \
                       recording. `uhr record --syscalls` counts all."
                    .to_owned(),
            );
        }
        let open_ns = self.windows.iter().map(|window| window.open_ns).fold(0, u64::saturating_add);
        let share = open_ns as f64 / self.length_ns.max(1) as f64;
        let blocks = self.blocks(profile)?;
        let range = if count < FEWEST {
            "too few to say how far off that may be".to_owned()
        } else {
            let (rate, reach) = ratio(&blocks);
            let all = |rate: f64| rounded(rate.max(0.0) * self.length_ns as f64);
            format!("95 % interval of all calls: {} to {}", all(rate - reach), all(rate + reach))
        };
        Ok(format!(
            "System calls were counted in {count} windows, {:.1} % of the time, and stand for the rest ({range}). \
             `uhr record --syscalls` counts all, and how long they take.",
            share * 100.0
        ))
    }

    /// Of each window the calls and the time that it stands for.
    fn blocks(&self, profile: &Profile) -> Result<Vec<(f64, f64)>, QueryError> {
        let parts = profile.observations.read(&["time_ns", "weight"], |rows: &Syscalls, at| {
            if rows.time_ns.len() != rows.weight.len() {
                return Err(QueryError::Damaged("syscalls lacks a column".to_owned()));
            }
            let mut sums = vec![0u64; self.windows.len()];
            for row in at {
                if let Some(at) = self.at(rows.time_ns[row]) {
                    sums[at] = sums[at].saturating_add(self.windows[at].scaled(rows.weight[row]));
                }
            }
            Ok(sums)
        })?;
        let mut blocks: Vec<_> =
            self.windows.iter().map(|window| (0.0, window.stands_for_ns as f64)).collect();
        for part in parts {
            blocks.iter_mut().zip(part).for_each(|(block, more)| block.0 += more as f64);
        }
        Ok(blocks)
    }
}

fn standing_for(windows: &[(u64, u64)], range: TimeRange) -> Vec<Window> {
    let middle = |(start, end): (u64, u64)| start + (end - start) / 2;
    let between = |a, b| middle(a) + (middle(b) - middle(a)) / 2;
    let window = |at: usize| {
        let own = windows[at];
        let from = at.checked_sub(1).map_or(range.start_ns, |before| between(windows[before], own));
        let to = windows.get(at + 1).map_or(range.end_ns, |behind| between(own, *behind));
        Window { start_ns: own.0, open_ns: own.1 - own.0, stands_for_ns: to.saturating_sub(from) }
    };
    (0..windows.len()).map(window).collect()
}

/// A count of which two digits are known.
fn rounded(count: f64) -> String {
    let digits = 10f64.powf((count.max(1.0).log10().floor() - 1.0).max(0.0));
    quantity(((count / digits).round() * digits) as u64, "count")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_window_stands_for_the_time_around_it() {
        let range = TimeRange { start_ns: 1000, end_ns: 5000, whole: true };
        let windows = CallWindows {
            windows: standing_for(&[(1100, 1120), (2100, 2120), (4100, 4140)], range),
            length_ns: 4000,
        };
        let stands_for: Vec<u64> = windows.windows.iter().map(|window| window.stands_for_ns).collect();
        assert_eq!(stands_for, [610, 1505, 1885], "and together for all of it");
        assert_eq!(windows.scaled(2, 1110), 61);
        assert_eq!(windows.scaled(20, 2119), 1505);
        assert_eq!(windows.scaled(40, 4990), 1885, "told after its window");
        assert_eq!(windows.scaled(7, 1050), 0, "before the first there was none");
    }

    #[test]
    fn two_digits() {
        assert_eq!([0.0, 7.0, 1234.0, 1_260_000.0].map(rounded), ["0", "7", "1,200", "1,300,000"]);
    }
}
