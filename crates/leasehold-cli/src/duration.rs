//! Durations on the command line and in the file: `250ms`, `30s`, `5m`, `1h`.

use std::time::Duration;

/// Reads a duration. A number alone is refused: some mean seconds, others milliseconds.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("a unit is missing; hint: write {text}s or {text}ms"));
    }
    humantime::parse_duration(text)
        .map_err(|_| "not a duration; hint: write it like 250ms, 30s, 5m or 1h".to_owned())
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
            assert!(parse(bad).is_err_and(|why| why.contains("hint:")), "{bad}");
        }
    }
}
