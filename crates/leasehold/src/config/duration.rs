//! Durations as people write them.

use std::time::Duration;

use super::quoted;
use crate::error::{Error, Result};

/// From long to short: the parts of a duration come in this order, each at most once.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

const ALLOWED: &str = "whole numbers, each with a unit of ms, s, m, h or d: 250ms, 30s, 1m30s, 24h";

/// Reads a duration with a unit: `250ms`, `30s`, `5m`, `24h`, `1m30s`.
///
/// A bare number is refused, because half of its readers would take it for seconds and the others for milliseconds.
///
/// ```
/// use std::time::Duration;
/// use leasehold::config::parse_duration;
///
/// assert_eq!(parse_duration("250ms")?, Duration::from_millis(250));
/// assert_eq!(parse_duration("1m30s")?, Duration::from_secs(90));
/// assert!(parse_duration("30").unwrap_err().to_string().contains("30s or 30ms"));
/// # Ok::<(), leasehold::Error>(())
/// ```
///
/// # Errors
/// `invalid` for anything else, and for a duration too long to count in milliseconds.
pub fn parse_duration(text: &str) -> Result<Duration> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        let number = quoted(text);
        return Err(invalid(text, format!("a number with a unit, such as {number}s or {number}ms")));
    }
    let mut total_ms = 0_u64;
    let mut units = UNITS.iter();
    let mut rest = text;
    loop {
        let (number, after) = split(rest, |c| c.is_ascii_digit());
        let (unit, after) = split(after, |c| c.is_ascii_alphabetic());
        // The units are used up as they are found, so a repeated or a longer one is not.
        let Some((_, unit_ms)) = units.find(|(known, _)| *known == unit) else {
            return Err(invalid(text, ALLOWED));
        };
        if number.is_empty() {
            return Err(invalid(text, ALLOWED));
        }
        let part_ms = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*unit_ms));
        total_ms = part_ms
            .and_then(|part_ms| total_ms.checked_add(part_ms))
            .ok_or_else(|| invalid(text, "a duration that is not that long"))?;
        if after.is_empty() {
            return Ok(Duration::from_millis(total_ms));
        }
        rest = after;
    }
}

fn invalid(text: &str, allowed: impl Into<String>) -> Error {
    Error::invalid("duration", quoted(text), allowed)
}

/// The longest beginning that consists of such characters, and what follows it.
fn split(text: &str, of: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !of(c)).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_unit_and_their_sums_are_read() {
        for (text, ms) in [
            ("0s", 0),
            ("1ms", 1),
            ("250ms", 250),
            ("30s", 30_000),
            ("5m", 300_000),
            ("24h", 86_400_000),
            ("7d", 604_800_000),
            ("1m30s", 90_000),
            ("1d2h3m4s5ms", 93_784_005),
            ("90s", 90_000),
        ] {
            assert_eq!(parse_duration(text).unwrap(), Duration::from_millis(ms), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused_with_an_example() {
        for bad in [
            "", " ", "s", "ms", "30 s", " 30s", "30s ", "1.5s", "-1s", "+1s", "30S", "30sec", "1s30",
            "30s1m", "1s1s", "٣s", "1µs", "\n", "1ms1s", "forever",
        ] {
            let error = parse_duration(bad).unwrap_err();
            assert_eq!(error.kind().as_str(), "invalid");
            let text = error.to_string();
            assert!(text.contains("30s") && !text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn a_bare_number_gets_a_hint() {
        let text = parse_duration("5000").unwrap_err().to_string();
        assert_eq!(text, "invalid duration \"5000\": expected a number with a unit, such as 5000s or 5000ms");
    }

    #[test]
    fn too_long_is_an_error_and_not_a_short_time() {
        for long in
            ["18446744073709551616ms", "18446744073709551615s", "18446744073709551s616ms", "213503982335d"]
        {
            assert!(parse_duration(long).unwrap_err().to_string().contains("not that long"), "{long}");
        }
        assert!(parse_duration("18446744073709551615ms").is_ok());
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,40}") {
            let _ = parse_duration(&text);
        }

        #[test]
        fn whole_milliseconds_are_read_back(ms in any::<u64>()) {
            prop_assert_eq!(parse_duration(&format!("{ms}ms")).unwrap(), Duration::from_millis(ms));
        }
    }
}
