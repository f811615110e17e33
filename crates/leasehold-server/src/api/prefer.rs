//! How long a caller is ready to wait (RFC 7240).

use std::time::Duration;

use http::HeaderMap;
use schemars::JsonSchema;

use crate::{
    json::text_of,
    limits::WAIT_MAX,
    problem::{Problem, Result},
};

/// What `Prefer` asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prefer {
    pub(crate) wait: Duration,
    pub(crate) is_async: bool,
}

impl Prefer {
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self> {
        let mut prefer = Self::default();
        let text = text_of(headers, "prefer")?.unwrap_or_default();
        for word in text.split([',', ';']).map(str::trim) {
            match word.split_once('=').map_or((word, ""), |(name, value)| (name.trim(), value.trim())) {
                ("respond-async", "") => prefer.is_async = true,
                ("wait", seconds) => prefer.wait = seconds_of(seconds)?,
                // Preferences that are not known are ignored, as the RFC says.
                _ => {}
            }
        }
        Ok(prefer)
    }
}

/// The schema of a number of seconds to wait.
#[derive(JsonSchema)]
pub(crate) struct Seconds(
    #[expect(dead_code, reason = "queries are read as text")]
    #[schemars(range(min = 0, max = 60))]
    f64,
);

/// A number of seconds to wait, within the limit.
pub(crate) fn seconds_of(text: &str) -> Result<Duration> {
    let seconds = text.parse().ok().and_then(|seconds: f64| Duration::try_from_secs_f64(seconds).ok());
    seconds.filter(|wait| *wait <= WAIT_MAX).ok_or_else(|| {
        Problem::invalid(format!("the time to wait is a number of seconds from 0 to {}", WAIT_MAX.as_secs()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preferences_are_read_and_unknown_ones_ignored() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("prefer", text.parse().unwrap());
            Prefer::of(&headers).ok().map(|prefer| (prefer.wait.as_secs(), prefer.is_async))
        };
        assert_eq!(read("wait=10"), Some((10, false)));
        assert_eq!(read("respond-async, wait=0"), Some((0, true)));
        assert_eq!(read("return=minimal; respond-async"), Some((0, true)));
        for refused in ["wait=61", "wait=-1", "wait=x", "wait"] {
            assert_eq!(read(refused), None, "{refused}");
        }
    }
}
