//! `2026-01-02T03:04:05.678Z`, as manifests have it.

const DAY_S: u64 = 86_400;

/// Nanoseconds since 1970; `None` of what is no such time.
pub fn parse_ns(text: &str) -> Option<u64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let [year, month, day] = numbers(date, '-')?;
    let (clock, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [hour, minute, second] = numbers(clock, ':')?;
    let in_range = (1970..=2500).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && (hour, minute, second) <= (23, 59, 60)
        && minute <= 59
        && second <= 60;
    if !in_range || fraction.len() > 9 {
        return None;
    }
    let digits = u32::try_from(fraction.len()).ok()?;
    let fraction_ns = number(fraction)? * 10_u64.pow(9 - digits);
    let seconds = days(year, month, day) * DAY_S + hour * 3_600 + minute * 60 + second;
    seconds.checked_mul(1_000_000_000)?.checked_add(fraction_ns)
}

fn numbers(text: &str, between: char) -> Option<[u64; 3]> {
    let numbers: Vec<u64> = text.split(between).map(number).collect::<Option<_>>()?;
    numbers.try_into().ok()
}

fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// Since 1970, in a calendar whose years begin in March: the leap day is then the last.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
    // Of 1970-01-01 in that calendar, with the four hundred years that repeat.
    const EPOCH: u64 = 719_468;
    year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1 - EPOCH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_manifests() {
        for (text, s) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2000-02-29T12:00:00.000Z", Some(951_825_600)),
            ("2025-01-02T03:04:05Z", Some(1_735_787_045)),
            ("2100-03-01T00:00:00.000Z", Some(4_107_542_400)),
            ("", None),
            ("2025-13-02T03:04:05Z", None),
            ("2025-01-02T03:04:05", None),
            ("2025-01-02T03:04:+5Z", None),
            ("2025-01-02T03:04:05.0000000001Z", None),
            ("18446744073709551616-01-02T03:04:05Z", None),
        ] {
            assert_eq!(parse_ns(text), s.map(|s: u64| s * 1_000_000_000), "{text}");
        }
        let ns = parse_ns("2025-01-02T03:04:05.678Z").expect("a time");
        assert_eq!(ns % 1_000_000_000, 678_000_000);
    }
}
