//! Numbers as people read them: three digits and a unit.

/// A value in the unit that answers name: `ns`, `bytes`, `count`.
pub(crate) fn value(value: f64, unit: &str) -> String {
    match unit {
        "ns" => time(value),
        "bytes" => bytes(value),
        _ => count(value),
    }
}

/// Nanoseconds, such as `1.23 s` or `45.6 ms`.
pub(crate) fn time(ns: f64) -> String {
    const UNITS: [(f64, &str); 4] = [(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")];
    // Hours of a long recording stay in seconds up to a limit where nobody divides any more in the head.
    if ns >= 600e9 {
        let seconds = (ns / 1e9).round() as u64;
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        return if hours > 0 {
            format!("{hours} h {minutes:02} min")
        } else {
            format!("{minutes} min {seconds:02} s")
        };
    }
    scaled(ns, &UNITS)
}

/// Bytes, in units of 1000 as the kernel's tools and disks have them: `12.3 MB`.
pub(crate) fn bytes(bytes: f64) -> String {
    const UNITS: [(f64, &str); 5] = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")];
    scaled(bytes, &UNITS)
}

/// A count with thousands apart: `9,902`.
pub(crate) fn count(count: f64) -> String {
    let digits = format!("{:.0}", count.abs());
    let mut grouped = if count < 0.0 { "-".to_owned() } else { String::new() };
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A share of one as per cent: `45.6 %`, `0.02 %`, `<0.01 %`.
pub(crate) fn share(share: f64) -> String {
    let percent = share * 100.0;
    if percent == 0.0 {
        return "0 %".to_owned();
    }
    match percent {
        p if p < 0.01 => "<0.01 %".to_owned(),
        p if p < 0.095 => format!("{p:.2} %"),
        // Not rounded up to a whole that it is not.
        p if p < 100.0 => format!("{:.1} %", p.min(99.9)),
        p => format!("{p:.0} %"),
    }
}

/// A share with half the width of its interval: `45.6 % ±1.2`. An interval of nothing is not printed.
pub(crate) fn share_with_interval(value: f64, interval: [f64; 2]) -> String {
    let half = (interval[1] - interval[0]) * 50.0;
    match half {
        h if h <= 0.0 => share(value),
        h if h < 0.05 => format!("{} ±<0.1", share(value)),
        h if h < 9.95 => format!("{} ±{h:.1}", share(value)),
        h => format!("{} ±{h:.0}", share(value)),
    }
}

fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    let size = value.abs();
    // 999.7 µs is 1.00 ms: what would be written with four digits belongs to the next unit.
    let &(unit, name) =
        units.iter().find(|(unit, _)| size >= unit * 0.9995).or(units.last()).unwrap_or(&(1.0, ""));
    let scaled = value / unit;
    let digits = match scaled.abs() {
        _ if unit == 1.0 && value.fract() == 0.0 => 0,
        s if s < 9.995 => 2,
        s if s < 99.95 => 1,
        _ => 0,
    };
    format!("{scaled:.digits$} {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits() {
        for (ns, text) in [
            (0.0, "0 ns"),
            (7.0, "7 ns"),
            (999.0, "999 ns"),
            (1_234.0, "1.23 µs"),
            (999_700.0, "1.00 ms"),
            (45_600_000.0, "45.6 ms"),
            (9_912_000_000.0, "9.91 s"),
            (599e9, "599 s"),
            (754e9, "12 min 34 s"),
            (7_500e9, "2 h 05 min"),
        ] {
            assert_eq!(time(ns), text);
        }
        assert_eq!(bytes(12_345_678.0), "12.3 MB");
        assert_eq!(bytes(0.0), "0 B");
        assert_eq!(value(1234567.0, "count"), "1,234,567");
        assert_eq!(count(-999.0), "-999");
    }

    #[test]
    fn shares() {
        assert_eq!(share(0.456), "45.6 %");
        assert_eq!(share(0.9999), "99.9 %");
        assert_eq!(share(1.0), "100 %");
        assert_eq!(share(0.0), "0 %");
        assert_eq!(share(0.00002), "<0.01 %");
        assert_eq!(share(0.0004), "0.04 %");
        assert_eq!(share_with_interval(0.456, [0.444, 0.468]), "45.6 % ±1.2");
        assert_eq!(share_with_interval(0.5, [0.0, 1.0]), "50.0 % ±50");
        assert_eq!(share_with_interval(0.5, [0.4999, 0.5001]), "50.0 % ±<0.1");
    }
}
