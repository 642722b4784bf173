//! Numbers as people read them. Integer arithmetic, so that every machine prints the same.

/// `value` with three significant digits and its unit: `1.23 s`, `45.6 MiB`, `1,234`.
pub(crate) fn quantity(value: u64, unit: &str) -> String {
    match unit {
        "ns" => duration(value),
        "bytes" => bytes(value),
        "count" => grouped(value),
        _ => format!("{} {unit}", grouped(value)),
    }
}

/// `part` of `whole` in percent: `45.6 %`, two decimals below 1 %.
pub(super) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "0 %".to_string();
    }
    let hundredths = (u128::from(part) * 20_000 / u128::from(whole)).div_ceil(2);
    match hundredths {
        0 if part > 0 => "<0.01 %".to_string(),
        10_000 if part == whole => "100 %".to_string(),
        0..100 => format!("0.{hundredths:02} %"),
        _ => format!("{} %", decimal(hundredths, 100, 1)),
    }
}

/// `12,345`.
pub(super) fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn duration(ns: u64) -> String {
    const SECOND: u64 = 1_000_000_000;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} µs", three_digits(ns, 1_000)),
        1_000_000..SECOND => format!("{} ms", three_digits(ns, 1_000_000)),
        _ if ns < 120 * SECOND => format!("{} s", three_digits(ns, SECOND)),
        _ if ns < 7200 * SECOND => format!("{} min {} s", ns / SECOND / 60, ns / SECOND % 60),
        _ => format!("{} h {} min", grouped(ns / SECOND / 3600), ns / SECOND / 60 % 60),
    }
}

fn bytes(value: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if value < 1024 {
        return format!("{value} B");
    }
    let power = value.ilog2() / 10;
    format!("{} {}", three_digits(value, 1 << (10 * power)), UNITS[power as usize - 1])
}

fn three_digits(value: u64, divisor: u64) -> String {
    let decimals = match value / divisor {
        0..10 => 2,
        10..100 => 1,
        _ => 0,
    };
    decimal(u128::from(value), u128::from(divisor), decimals)
}

/// `value / divisor`, rounded to `decimals` places.
fn decimal(value: u128, divisor: u128, decimals: u32) -> String {
    let scale = 10u128.pow(decimals);
    let scaled = (value * scale + divisor / 2) / divisor;
    match decimals {
        0 => scaled.to_string(),
        _ => format!("{}.{:0width$}", scaled / scale, scaled % scale, width = decimals as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_sizes_and_counts() {
        let cases = [
            (0, "ns", "0 ns"),
            (999, "ns", "999 ns"),
            (1_234, "ns", "1.23 µs"),
            (45_600_000, "ns", "45.6 ms"),
            (1_234_567_890, "ns", "1.23 s"),
            (119_400_000_000, "ns", "119 s"),
            (3_605_000_000_000, "ns", "60 min 5 s"),
            (7_260_000_000_000, "ns", "2 h 1 min"),
            (1023, "bytes", "1023 B"),
            (1536, "bytes", "1.50 KiB"),
            (u64::MAX, "bytes", "16.0 EiB"),
            (1_234_567, "count", "1,234,567"),
            (12, "cycles", "12 cycles"),
        ];
        for (value, unit, expected) in cases {
            assert_eq!(quantity(value, unit), expected);
        }
    }

    #[test]
    fn shares() {
        let cases = [
            (0, 0, "0 %"),
            (0, 10, "0.00 %"),
            (10, 10, "100 %"),
            (456, 1000, "45.6 %"),
            (9_999_999, 10_000_000, "100.0 %"),
            (5, 10_000, "0.05 %"),
            (1, 1_000_000, "<0.01 %"),
            (u64::MAX / 2, u64::MAX, "50.0 %"),
        ];
        for (part, whole, expected) in cases {
            assert_eq!(percent(part, whole), expected);
        }
    }
}
