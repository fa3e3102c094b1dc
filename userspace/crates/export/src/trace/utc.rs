//! Parses times such as `2026-01-02T03:04:05.678Z`, as in manifests.

use chrono::DateTime;

/// Length with all nine digits of the nanoseconds. The library would ignore further digits.
const MOST_BYTES: usize = "2026-01-02T03:04:05.678901234Z".len();

/// Nanoseconds since 1970; `None` if the text is not such a time.
pub fn parse_ns(text: &str) -> Option<u64> {
    let time = DateTime::parse_from_rfc3339(text).ok()?;
    let is_such = text.ends_with('Z') && text.len() <= MOST_BYTES;
    u64::try_from(time.timestamp_nanos_opt().filter(|_| is_such)?).ok()
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
