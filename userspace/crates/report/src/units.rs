//! Formats numbers for people: nanoseconds in a suitable unit, shares, percentiles.

use anyhow::{bail, ensure, Context, Result};

const UNITS: [(&str, u128); 3] = [("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

/// Formats nanoseconds with three significant digits in a suitable unit. Rounds half up; from 1000
/// s on, shows whole seconds. Examples: `999 ns`, `1.00 us`, `12.3 ms`.
pub fn format_ns(ns: impl Into<u128>) -> String {
    let ns = ns.into();
    if ns < 1_000 {
        return format!("{ns} ns");
    }
    for (unit, size) in UNITS {
        for decimals in [2, 1, 0] {
            let factor = 10_u128.pow(decimals);
            let scaled = ns.saturating_mul(factor).saturating_add(size / 2) / size;
            if scaled < 1_000 {
                let (whole, part) = (scaled / factor, scaled % factor);
                return match decimals {
                    0 => format!("{whole} {unit}"),
                    _ => format!("{whole}.{part:0width$} {unit}", width = decimals as usize),
                };
            }
        }
    }
    format!("{} s", ns.saturating_add(500_000_000) / 1_000_000_000)
}

/// Formats an instant within a span of `whole_ns`, with three decimals in the unit that suits the
/// span, so that instants in a column are easy to compare. Truncates.
pub fn format_at(ns: u64, whole_ns: u64) -> String {
    let (unit, size) = match whole_ns {
        0..1_000_000 => ("us", 1_000),
        1_000_000..1_000_000_000 => ("ms", 1_000_000),
        _ => ("s", 1_000_000_000),
    };
    format!("{}.{:03} {unit}", ns / size, ns % size / (size / 1_000))
}

/// Formats an instant relative to the start of the capture, in seconds with six decimals and a
/// sign.
pub fn format_start(start_ns: u64, capture_start_ns: u64) -> String {
    let sign = if start_ns < capture_start_ns { '-' } else { '+' };
    let us = start_ns.abs_diff(capture_start_ns) / 1_000;
    format!("{sign}{}.{:06} s", us / 1_000_000, us % 1_000_000)
}

/// Formats `part` of `whole` in per cent with one decimal: `<0.1 %` if it would round to zero, `-`
/// if the whole is 0.
pub fn format_share(part: impl Into<u128>, whole: impl Into<u128>) -> String {
    let (part, whole) = (part.into(), whole.into());
    if whole == 0 {
        return "-".to_owned();
    }
    let per_mille = part.saturating_mul(1_000).saturating_add(whole / 2) / whole;
    if per_mille == 0 && part > 0 {
        return "<0.1 %".to_owned();
    }
    format!("{}.{} %", per_mille / 10, per_mille % 10)
}

/// As [`format_ns`], with a sign for values below 0.
pub fn format_signed_ns(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    format!("{sign}{}", format_ns(ns.unsigned_abs()))
}

/// Formats a rate per second: `0.25/s`, `12.3/s`, `1,234/s`.
pub fn format_rate(per_s: f64) -> String {
    match per_s {
        0.0..0.995 => format!("{per_s:.2}/s"),
        0.995..99.95 => format!("{per_s:.1}/s"),
        _ => format!("{}/s", format_exact(per_s.round() as u128)),
    }
}

/// Formats a whole number with commas between the thousands.
pub fn format_exact(number: impl Into<u128>) -> String {
    let digits = number.into().to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a count: `1 request`, `2 requests`.
pub fn count(number: u64, noun: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{} {noun}{s}", format_exact(number))
}

/// Parses nanoseconds from text such as `250ns`, `1.5 us`, `3ms`, `2s`, `1.5m` (minutes, also
/// `min`), `1h`.
///
/// # Errors
/// When the text is not a decimal number with one of these units, has parts finer than 1 ns, or is
/// too long.
pub fn parse_ns(text: &str) -> Result<u64> {
    let wrong = || format!("{text:?} is not a duration such as 250ns, 1.5us, 3ms, 2s, 5m or 1h");
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').with_context(wrong)?;
    let (number, unit) = text.split_at(split);
    let unit_ns: u128 = match unit.trim_start() {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" | "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => bail!(wrong()),
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let part = part.trim_end_matches('0');
    if whole.is_empty() || part.contains('.') || part.len() > MOST_DECIMALS {
        bail!(wrong());
    }
    let scale = 10_u128.pow(part.len() as u32);
    let scaled: u128 = format!("{whole}{part}").parse().with_context(wrong)?;
    let scaled_ns = scaled.checked_mul(unit_ns).with_context(wrong)?;
    ensure!(scaled_ns % scale == 0, wrong());
    u64::try_from(scaled_ns / scale).with_context(wrong)
}

/// More decimals of an hour cannot make a whole number of nanoseconds.
const MOST_DECIMALS: usize = 13;

/// Returns a percentile by nearest rank, on exact integers: the smallest value such that at least
/// `percent` of the `count` values are not above it. `nonzero` holds the values above 0 in
/// ascending order; the other `count - nonzero.len()` values are 0. There is no interpolation: the
/// result is one of the values. Returns 0 if there are no values.
pub fn nearest_rank(nonzero: &[u64], count: u64, percent: u32) -> u64 {
    let rank = (u128::from(percent) * u128::from(count)).div_ceil(100).max(1);
    let zeros = u128::from(count).saturating_sub(nonzero.len() as u128);
    match rank.checked_sub(zeros + 1) {
        Some(index) => nonzero.get(index as usize).or(nonzero.last()).copied().unwrap_or(0),
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_fit_and_keep_three_digits() {
        let expected = [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 us"),
            (9_994, "9.99 us"),
            (9_995, "10.0 us"),
            (99_949, "99.9 us"),
            (99_950, "100 us"),
            (999_499, "999 us"),
            (999_500, "1.00 ms"),
            (12_345_678, "12.3 ms"),
            (999_999_999, "1.00 s"),
            (12_300_000_000, "12.3 s"),
            (999_499_999_999, "999 s"),
            (999_500_000_000, "1000 s"),
            (u64::MAX, "18446744074 s"),
        ];
        for (ns, text) in expected {
            assert_eq!(format_ns(ns), text, "{ns}");
        }
        assert_eq!(format_ns(u128::MAX).split(' ').next_back(), Some("s"));
    }

    #[test]
    fn instants() {
        assert_eq!(format_at(1_234, 99_000), "1.234 us");
        assert_eq!(format_at(1_234_567, 99_000_000), "1.234 ms");
        assert_eq!(format_at(1_234_567_890, 9_000_000_000), "1.234 s");
        assert_eq!(format_start(1_500, 500), "+0.000001 s");
        assert_eq!(format_start(0, 1_250_000_000), "-1.250000 s");
    }

    #[test]
    fn shares() {
        assert_eq!(format_share(1_u64, 3_u64), "33.3 %");
        assert_eq!(format_share(0_u64, 3_u64), "0.0 %");
        assert_eq!(format_share(1_u64, 1_000_000_u64), "<0.1 %");
        assert_eq!(format_share(3_u64, 3_u64), "100.0 %");
        assert_eq!(format_share(0_u64, 0_u64), "-");
    }

    #[test]
    fn counts() {
        assert_eq!(count(1, "request"), "1 request");
        assert_eq!(count(1_234_567, "request"), "1,234,567 requests");
        assert_eq!(format_exact(999_u64), "999");
    }

    #[test]
    fn durations_parse_exactly() {
        assert_eq!(parse_ns("250ns").unwrap(), 250);
        assert_eq!(parse_ns("1.5 us").unwrap(), 1_500);
        assert_eq!(parse_ns("3ms").unwrap(), 3_000_000);
        assert_eq!(parse_ns("0.10s").unwrap(), 100_000_000);
        assert_eq!(parse_ns("2m").unwrap(), 120_000_000_000);
        assert_eq!(parse_ns("1.5 min").unwrap(), 90_000_000_000);
        assert_eq!(parse_ns("1h").unwrap(), 3_600_000_000_000);
        assert_eq!(parse_ns("0.0000000000025h").unwrap(), 9);
        assert_eq!(parse_ns("18446744073.709551615s").unwrap(), u64::MAX);
        for bad in [
            "",
            "3",
            "ms",
            ".5ms",
            "1.5ns",
            "1.2.3s",
            "1..s",
            "-1ms",
            "3d",
            "1h 2m",
            "0.1234567891234567s",
            "0.00000000001m",
            "18446744073.709551616s",
            "99999999999999s",
            "999999999999999999999999999999999999999999h",
        ] {
            assert!(parse_ns(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn percentiles_are_nearest_rank() {
        let values: Vec<u64> = (1..=100).collect();
        assert_eq!(nearest_rank(&values, 100, 50), 50);
        assert_eq!(nearest_rank(&values, 100, 99), 99);
        assert_eq!(nearest_rank(&values, 100, 100), 100);
        assert_eq!(nearest_rank(&[15, 20, 35, 40, 50], 5, 30), 20);
        assert_eq!(nearest_rank(&[7], 1, 1), 7);
        assert_eq!(nearest_rank(&[], 0, 50), 0);
    }

    #[test]
    fn percentiles_count_zeros() {
        assert_eq!(nearest_rank(&[5, 9], 10, 50), 0);
        assert_eq!(nearest_rank(&[5, 9], 10, 80), 0);
        assert_eq!(nearest_rank(&[5, 9], 10, 90), 5);
        assert_eq!(nearest_rank(&[5, 9], 10, 99), 9);
        assert_eq!(nearest_rank(&[], 10, 99), 0);
    }
}
