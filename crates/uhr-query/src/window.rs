//! Windows of time: what `--from` and `--to` mean, and how a window is cut into parts.

use jiff::Timestamp;

use crate::QueryError;
use crate::filter::Filters;
use crate::profile::Profile;

/// The most parts that a window is cut into.
pub(crate) const MAX_BUCKETS: u64 = 10_000;

/// A part of the recording, half-open, in nanoseconds of CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeRange {
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    /// Whether it is the whole recording.
    pub(crate) whole: bool,
}

impl TimeRange {
    /// The length.
    pub(crate) fn length_ns(self) -> u64 {
        self.end_ns - self.start_ns
    }

    /// The window that the filters ask for, cut to the recording.
    pub(crate) fn of(profile: &Profile, filters: &Filters) -> Result<Self, QueryError> {
        let (start, end) = (profile.start_ns(), profile.end_ns);
        let at = |text: &Option<String>, otherwise| match text {
            Some(text) => Moment::parse(text).map(|moment| moment.monotonic_ns(profile)),
            None => Ok(otherwise),
        };
        let (from, to) = (at(&filters.from, i128::from(start))?, at(&filters.to, i128::from(end))?);
        let shown = |text: &Option<String>| text.clone().unwrap_or_default();
        let outside = |flag: &str, text: &Option<String>| QueryError::WindowOutside {
            asked: format!("--{flag} {}", shown(text)),
            length: seconds(end - start),
            start: date(profile.manifest.realtime_ns(start)),
            recording: profile.path.clone(),
        };
        // Before the others: it is wrong however long the recording is.
        if from >= to && filters.from.is_some() && filters.to.is_some() {
            return Err(QueryError::WindowEmpty {
                from: shown(&filters.from),
                to: shown(&filters.to),
                recording: profile.path.clone(),
            });
        }
        if filters.from.is_some() && from >= i128::from(end) {
            return Err(outside("from", &filters.from));
        }
        if filters.to.is_some() && to <= i128::from(start) {
            return Err(outside("to", &filters.to));
        }
        let clip = |time: i128| time.clamp(i128::from(start), i128::from(end)) as u64;
        let (start_ns, end_ns) = (clip(from), clip(to));
        Ok(Self { start_ns, end_ns, whole: (start_ns, end_ns) == (start, end) })
    }
}

/// A time as users write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// Nanoseconds since 1970.
    Date(i128),
    /// Nanoseconds from the start of the recording.
    FromStart(u64),
    /// Nanoseconds before its end.
    FromEnd(u64),
}

impl Moment {
    fn parse(text: &str) -> Result<Self, QueryError> {
        if let Some(offset) = text.strip_prefix('-').and_then(duration_ns) {
            return Ok(Self::FromEnd(offset));
        }
        if let Some(offset) = duration_ns(text.strip_prefix('+').unwrap_or(text)) {
            return Ok(Self::FromStart(offset));
        }
        let stamp: Timestamp = text.parse().map_err(|_| QueryError::BadTime(text.to_owned()))?;
        Ok(Self::Date(stamp.as_nanosecond()))
    }

    fn monotonic_ns(self, profile: &Profile) -> i128 {
        match self {
            Self::Date(date) => {
                let clock = profile.manifest.clock;
                date - i128::from(clock.realtime_ns) + i128::from(clock.monotonic_ns)
            }
            Self::FromStart(offset) => i128::from(profile.start_ns()) + i128::from(offset),
            Self::FromEnd(offset) => i128::from(profile.end_ns) - i128::from(offset),
        }
    }
}

/// A duration with its unit (`1.5s`, `250ms`, `2m`), in nanoseconds. Zero needs no unit.
pub(crate) fn duration_ns(text: &str) -> Option<u64> {
    if text == "0" {
        return Some(0);
    }
    let digits = text.find(|char: char| !char.is_ascii_digit() && char != '.')?;
    let (number, unit) = text.split_at(digits);
    let nanoseconds: u64 = match unit {
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" | "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if number.is_empty() || fraction.is_empty() {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut total = u128::from(whole) * u128::from(nanoseconds);
    // Each place is a tenth of the one before; what is below a nanosecond is dropped.
    let mut place = u128::from(nanoseconds);
    for digit in fraction.bytes() {
        place /= 10;
        total += place * u128::from(char::from(digit).to_digit(10)?);
    }
    u64::try_from(total).ok()
}

/// A time as a date in UTC, to the millisecond.
pub(crate) fn date(realtime_ns: u64) -> String {
    let milliseconds = i64::try_from(realtime_ns / 1_000_000).unwrap_or(0);
    Timestamp::from_millisecond(milliseconds).map_or_else(|_| String::new(), |stamp| format!("{stamp:.3}"))
}

/// A length of time in seconds, with no more places than it needs.
pub(crate) fn seconds(length_ns: u64) -> String {
    format!("{} s", (length_ns as f64 / 1e6).round() / 1e3)
}

/// How the window of a time dimension is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Into this many equal parts.
    Equal(u64),
    /// Into parts of this length.
    Every(u64),
}

/// Parts that `--group-by time` makes.
pub(crate) const TIME_PARTS: u64 = 60;

/// Parts of a window that intervals are estimated from (facts: 30 to 50).
pub(crate) const BLOCKS: u64 = 40;

/// A window cut into slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slots {
    pub(crate) range: TimeRange,
    cut: Cut,
}

impl Slots {
    /// Cuts a window; `asked` is how the user wrote it.
    pub(crate) fn new(range: TimeRange, cut: Cut, asked: &str) -> Result<Self, QueryError> {
        let buckets = match cut {
            Cut::Equal(parts) => parts,
            Cut::Every(step) => range.length_ns().div_ceil(step.max(1)),
        };
        if buckets > MAX_BUCKETS {
            return Err(QueryError::TooManyBuckets { asked: asked.to_owned(), buckets });
        }
        Ok(Self { range, cut })
    }

    /// The blocks that intervals are estimated from.
    pub(crate) fn blocks(range: TimeRange) -> Self {
        Self { range, cut: Cut::Equal(BLOCKS) }
    }

    /// How many there are.
    pub(crate) fn count(self) -> usize {
        match self.cut {
            Cut::Equal(parts) => parts as usize,
            Cut::Every(step) => self.range.length_ns().div_ceil(step.max(1)).max(1) as usize,
        }
    }

    /// Where slot `at` begins; of the slot behind the last, where the window ends.
    pub(crate) fn start_of(self, at: usize) -> u64 {
        let offset = match self.cut {
            Cut::Equal(parts) => {
                let length = u128::from(self.range.length_ns());
                (length * at as u128).div_ceil(u128::from(parts.max(1))) as u64
            }
            Cut::Every(step) => (at as u64).saturating_mul(step),
        };
        self.range.start_ns.saturating_add(offset).min(self.range.end_ns)
    }

    /// The slot of a time. A time outside the window belongs to the first or the last one.
    pub(crate) fn of(self, time_ns: u64) -> usize {
        let offset = time_ns.saturating_sub(self.range.start_ns);
        let at = match self.cut {
            Cut::Equal(parts) => match offset.checked_mul(parts) {
                Some(product) => product / self.range.length_ns().max(1),
                None => {
                    (u128::from(offset) * u128::from(parts) / u128::from(self.range.length_ns().max(1)))
                        as u64
                }
            },
            Cut::Every(step) => offset / step.max(1),
        };
        (at as usize).min(self.count() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let cases = [
            ("1.5s", Some(1_500_000_000)),
            ("250ms", Some(250_000_000)),
            ("2m", Some(120_000_000_000)),
            ("1h", Some(3_600_000_000_000)),
            ("0", Some(0)),
            (".25s", Some(250_000_000)),
            ("1.234567891s", Some(1_234_567_891)),
            ("0.5ns", Some(0)),
            ("1.", None),
            ("5", None),
            ("s", None),
            ("1.2.3s", None),
            ("99999999999h", None),
        ];
        for (text, expected) in cases {
            assert_eq!(duration_ns(text), expected, "{text}");
        }
    }

    #[test]
    fn dates() {
        assert_eq!(date(1_794_000_896_123_456_789), "2026-11-06T21:34:56.123Z");
        assert_eq!(Moment::parse("1970-01-01T00:00:01+00:00").unwrap(), Moment::Date(1_000_000_000));
        assert_eq!(Moment::parse("-2s").unwrap(), Moment::FromEnd(2_000_000_000));
        assert!(Moment::parse("yesterday").unwrap_err().is_usage());
    }

    #[test]
    fn slots_and_their_starts_agree() {
        for cut in [Cut::Equal(7), Cut::Equal(40), Cut::Every(13)] {
            let range = TimeRange { start_ns: 1_000, end_ns: 1_101, whole: true };
            let slots = Slots::new(range, cut, "").unwrap();
            for at in 0..slots.count() {
                let (start, end) = (slots.start_of(at), slots.start_of(at + 1));
                assert!((start..end).all(|time| slots.of(time) == at), "{cut:?} {at}");
            }
            assert_eq!((slots.start_of(0), slots.start_of(slots.count())), (1_000, 1_101));
            assert_eq!((slots.of(0), slots.of(5_000)), (0, slots.count() - 1));
        }
    }

    #[test]
    fn too_many_parts_are_refused() {
        let range = TimeRange { start_ns: 0, end_ns: 1_000_000, whole: true };
        assert!(matches!(
            Slots::new(range, Cut::Every(1), "time:1ns"),
            Err(QueryError::TooManyBuckets { .. })
        ));
    }
}
