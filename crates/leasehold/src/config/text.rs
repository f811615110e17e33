//! Values as people write them, and the words of errors about them. No file format is known here.

use std::{str::FromStr, time::Duration};

use crate::{
    engine::Acks,
    error::{Error, Result},
};

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

/// `majority`, or a number.
///
/// ```
/// use leasehold::Acks;
///
/// assert_eq!("majority".parse::<Acks>()?, Acks::Majority);
/// assert_eq!("2".parse::<Acks>()?, Acks::AtLeast(2));
/// # Ok::<(), leasehold::Error>(())
/// ```
impl FromStr for Acks {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text == "majority" {
            return Ok(Self::Majority);
        }
        let number: Result<u8, _> = text.parse();
        number.map(Self::from).map_err(|_| Error::invalid("acks", quoted(text), "0 to 255, or majority"))
    }
}

/// All known words and the one that is probably meant, as the end of a sentence that begins with "expected".
pub(crate) fn one_of<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let mut known: Vec<&str> = known.into_iter().collect();
    known.sort_unstable();
    // What people paste by mistake can be long.
    let word: String = word.chars().take(64).flat_map(char::to_lowercase).collect();
    let distance = |known: &&str| strsim::osa_distance(&word, known);
    let nearest = known.iter().copied().min_by_key(distance).filter(|near| distance(near) <= near.len() / 2);
    match (&known[..], nearest) {
        ([], _) => "none: nothing of this kind is defined".into(),
        ([only], _) => format!("\"{only}\""),
        (_, None) => format!("one of {}", known.join(", ")),
        (_, Some(nearest)) => format!("one of {}; did you mean \"{nearest}\"?", known.join(", ")),
    }
}

/// Bad input as errors quote it: short, and without control characters.
pub(crate) fn quoted(text: &str) -> String {
    let mut short: String = text.chars().take(64).filter(|c| !c.is_control()).collect();
    if text.chars().nth(64).is_some() {
        short.push('…');
    }
    short
}

/// As much of a text as that many bytes hold, cut between two characters.
pub(crate) fn cut(text: &str, most_bytes: usize) -> &str {
    let end = (0..=most_bytes.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

/// The same error, naming another place.
pub(crate) fn placed(error: Error, place: impl Into<String>) -> Error {
    match error {
        Error::Invalid { got, expected, .. } => Error::invalid(place, got, expected),
        other => other,
    }
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

    #[test]
    fn acks_are_a_number_or_a_majority() {
        for (text, acks) in [("0", Acks::None), ("255", Acks::AtLeast(255)), ("majority", Acks::Majority)] {
            assert_eq!(text.parse::<Acks>().unwrap(), acks);
        }
        for bad in ["", "256", "-1", "most", "1.5", "Majority"] {
            let error = bad.parse::<Acks>().unwrap_err().to_string();
            assert!(error.ends_with("expected 0 to 255, or majority"), "{error}");
        }
    }

    #[test]
    fn a_word_that_is_near_is_suggested() {
        assert_eq!(
            one_of("Defualt-TTL", ["max-ttl", "default-ttl"]),
            "one of default-ttl, max-ttl; did you mean \"default-ttl\"?"
        );
        assert_eq!(one_of("colour", ["max-ttl", "default-ttl"]), "one of default-ttl, max-ttl");
        assert_eq!(one_of("x", ["only"]), "\"only\"");
        assert_eq!(one_of("x", []), "none: nothing of this kind is defined");
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
