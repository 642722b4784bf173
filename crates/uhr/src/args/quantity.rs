//! Durations and sizes as people write them: `10s`, `250ms`, `16k`.

use std::time::Duration;

/// A duration with a unit (`ns us ms s m h`, fractions allowed). A bare number is seconds, as `sleep` and `timeout`
/// have it.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text)?;
    let nanoseconds_a_unit = match unit {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "" | "s" => 1e9,
        "m" | "min" => 60e9,
        "h" => 3600e9,
        _ => return Err(format!("'{unit}' is no unit of time (ns, us, ms, s, m, h)")),
    };
    let nanoseconds = number * nanoseconds_a_unit;
    // A century: whoever asks for more has mistyped, and u64 nanoseconds hold it.
    if !(1.0..=3.2e18).contains(&nanoseconds) {
        return Err("it has to be longer than nothing and shorter than a century".to_owned());
    }
    Ok(Duration::from_nanos(nanoseconds.round() as u64))
}

/// A number of bytes, with a unit of 1024 (`k M G`, also as `KiB` or `kB`) or without.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text)?;
    let shift = match unit.to_ascii_lowercase().trim_end_matches('b').trim_end_matches('i') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        _ => return Err(format!("'{unit}' is no unit of size (k, M, G)")),
    };
    let bytes = number * f64::from(1_u32 << shift);
    if bytes > 1e15 || bytes.fract() != 0.0 {
        return Err("it has to be a whole number of bytes, and fewer than a petabyte".to_owned());
    }
    Ok(bytes as u64)
}

/// Bytes of stack to copy with a sample. The kernel takes multiples of 8 in 16 bits
/// (`perf_event_attr.sample_stack_user`, checked in `perf_copy_attr`).
pub(crate) fn stack_size(text: &str) -> Result<u32, String> {
    const LARGEST: u64 = 65_528;
    let bytes = bytes(text)?;
    if !(1024..=LARGEST).contains(&bytes) || !bytes.is_multiple_of(8) {
        return Err(format!("the kernel copies 1k to {LARGEST} bytes, in multiples of 8"));
    }
    u32::try_from(bytes).map_err(|_| "it is too large".to_owned())
}

/// A share as people write it: `1%`.
pub(crate) fn percentage(text: &str) -> Result<f64, String> {
    match split(text)? {
        (number, "%") if number > 0.0 && number <= 100.0 => Ok(number / 100.0),
        _ => Err("it is a share of the time of all CPUs, such as 1%".to_owned()),
    }
}

fn split(text: &str) -> Result<(f64, &str), String> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number =
        text[..end].parse().map_err(|_| "it has to begin with a number, as in 10s or 16k".to_owned())?;
    Ok((number, text[end..].trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, ns) in [
            ("10s", 10_000_000_000),
            ("10", 10_000_000_000),
            ("250ms", 250_000_000),
            ("1.5s", 1_500_000_000),
            ("2 m", 120_000_000_000),
            ("7us", 7_000),
            ("1h", 3_600_000_000_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_nanos(ns)), "{text}");
        }
        for text in ["", "s", "0s", "-1s", "1.2.3s", "10 fortnights", "1e9s", "99999999999h"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes() {
        for (text, expected) in
            [("16k", 16_384), ("16KiB", 16_384), ("1.5k", 1536), ("2M", 2 << 20), ("12", 12)]
        {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        assert!(bytes("16q").is_err());
        assert!(bytes("0.3").is_err());
        assert_eq!(stack_size("16k"), Ok(16_384));
        assert_eq!(percentage("0.5%"), Ok(0.005));
        assert!(["1", "0%", "101%", "%", "1 percent"].iter().all(|text| percentage(text).is_err()));
        assert!(stack_size("64k").is_err());
        assert!(stack_size("10").is_err());
        assert!(stack_size("1025").is_err());
    }
}
