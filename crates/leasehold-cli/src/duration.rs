//! Durations on the command line: `250ms`, `30s`, `5m`, `1h`.

use std::time::Duration;

use leasehold::{Error, config::parse_duration};

/// Reads a duration. A number without a unit is refused, except 0.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| match error {
        Error::Invalid { expected, .. } => format!("expected {expected}"),
        other => other.to_string(),
    })
}

/// Reads how long to wait: as flock, also in seconds without a unit.
pub(crate) fn parse_wait(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>().map(Duration::try_from_secs_f64) {
        Ok(Ok(seconds)) => Ok(seconds),
        _ => parse(text),
    }
}

/// A duration as files and variables have it.
pub(crate) fn written(duration: Duration) -> String {
    humantime::format_duration(duration).to_string().replace(' ', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        for (text, millis) in [("250ms", 250), ("30s", 30_000), ("5m", 300_000), ("1h", 3_600_000), ("0", 0)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)));
        }
        for bad in ["30", "", "-1s", "1.5", "soon"] {
            assert!(parse(bad).is_err_and(|why| why.starts_with("expected ")), "{bad}");
        }
    }

    #[test]
    fn what_is_written_can_be_read() {
        for text in ["50ms", "10m", "1h30m", "5m"] {
            assert_eq!(written(parse(text).unwrap()), text);
        }
        let day = Duration::from_secs(86_400);
        assert_eq!(parse(&written(day)), Ok(day));
    }

    #[test]
    fn a_wait_may_be_a_number_of_seconds() {
        for (text, millis) in [("5", 5_000), ("0.25", 250), ("0", 0), ("5m", 300_000)] {
            assert_eq!(parse_wait(text), Ok(Duration::from_millis(millis)));
        }
        for bad in ["", "-1", "inf", "nan", "1e99", "soon"] {
            assert!(parse_wait(bad).is_err_and(|why| why.starts_with("expected ")), "{bad}");
        }
    }
}
