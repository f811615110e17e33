//! Durations as people write them.

use std::time::Duration;

use crate::{Error, Result, text::quoted};

const DURATION: &str = "a number with a unit of ms, s, m, h or d: 250ms, 30s, 1m30s, 24h";

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
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let expected = match humantime::parse_duration(text) {
        // `1M` would be a month.
        _ if text.contains('M') => DURATION.into(),
        Ok(duration) if u64::try_from(duration.as_millis()).is_ok() => return Ok(duration),
        Ok(_) | Err(humantime::DurationError::NumberOverflow) => "a shorter duration".into(),
        Err(_) if is_number => {
            let number = quoted(text);
            format!("a number with a unit, such as {number}s or {number}ms")
        }
        Err(_) => DURATION.into(),
    };
    Err(Error::invalid("duration", quoted(text), expected))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_unit_and_their_sums_are_read() {
        for (text, ms) in [
            ("0", 0),
            ("0s", 0),
            ("1ms", 1),
            ("250ms", 250),
            ("30s", 30_000),
            ("5m", 300_000),
            ("24h", 86_400_000),
            ("7d", 604_800_000),
            ("1m30s", 90_000),
            ("1m 30s", 90_000),
            ("1d2h3m4s5ms", 93_784_005),
            ("90s", 90_000),
        ] {
            assert_eq!(parse_duration(text).unwrap(), Duration::from_millis(ms), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused_with_an_example() {
        for bad in ["", " ", "s", "ms", "-1s", "+1s", "30S", "1M", "1s30", "1.5", "٣s", "\n", "forever"] {
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
        for long in ["18446744073709551616ms", "18446744073709551615s", "213503982335d"] {
            assert!(parse_duration(long).unwrap_err().to_string().contains("a shorter duration"), "{long}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,40}") {
            let _ = parse_duration(&text);
        }

        #[test]
        fn whole_milliseconds_are_read_back(ms in 0..u64::MAX / 1_000_000) {
            prop_assert_eq!(parse_duration(&format!("{ms}ms")).unwrap(), Duration::from_millis(ms));
        }
    }
}
