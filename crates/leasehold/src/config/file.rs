//! A TOML file whose values a variable may replace, with errors that name the file, the key and what is expected.

use std::fs::{self, File};
use std::{collections::BTreeMap, io::Read, path::Path, time::Duration};

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_path_to_error::Segment;
use toml::{Table, Value};

use crate::text::{one_of, quoted};
use crate::{Acks, Error, Format, Result};

/// Longest file that is read.
const FILE_MAX_BYTES: u64 = 1 << 20;

/// One file, or several of which a nearer one wins over a farther one.
#[derive(Debug, Default)]
pub(crate) struct Document {
    /// What errors call the file; of several the nearest.
    origin: String,
    /// What errors call the farther file that a key or a table `kind.name` is from.
    origins: BTreeMap<String, String>,
    pub(super) table: Table,
    /// Keys whose values come from a variable, with its name.
    pub(super) variables: BTreeMap<&'static str, String>,
}

impl Document {
    /// Reads a file.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        let refuse = |why: String| Error::invalid("file", quoted(&path.display().to_string()), why);
        let file = File::open(path).map_err(|error| refuse(format!("a file that can be read ({error})")))?;
        let mut text = String::new();
        let read = file.take(FILE_MAX_BYTES + 1).read_to_string(&mut text);
        read.map_err(|error| refuse(format!("a file with UTF-8 text ({error})")))?;
        if text.len() as u64 > FILE_MAX_BYTES {
            return Err(refuse("a file of at most 1 MiB".into()));
        }
        Self::parse(&text, &path.display().to_string())
    }

    /// Reads a text; `origin` is what errors call it.
    pub(crate) fn parse(text: &str, origin: &str) -> Result<Self> {
        let table = text.parse::<Table>().map_err(|error| {
            // Not the parser's own report: it quotes the line, and that line may hold a password.
            let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
            Error::invalid("TOML", format!("{origin} line {line}"), format!("TOML ({})", error.message()))
        })?;
        Ok(Self { origin: origin.to_owned(), table, ..Self::default() })
    }

    /// Adds what a farther file has besides. Tables are those of policies, by name.
    pub(super) fn add(&mut self, farther: Self) {
        for (key, value) in farther.table {
            match (self.table.get_mut(&key), value) {
                (Some(Value::Table(ours)), Value::Table(theirs)) => {
                    for (name, policy) in
                        theirs.into_iter().filter(|(name, _)| !ours.contains_key(name)).collect::<Vec<_>>()
                    {
                        self.origins.insert(format!("{key}.{name}"), farther.origin.clone());
                        ours.insert(name, policy);
                    }
                }
                (Some(_), _) => {}
                (None, value) => {
                    self.table.insert(key.clone(), value);
                    self.origins.insert(key, farther.origin.clone());
                }
            }
        }
    }

    /// What errors call the file that a key is from.
    pub(super) fn origin_of(&self, keys: &[&str]) -> &str {
        let of_policy = keys.get(..2).and_then(|table| self.origins.get(&table.join(".")));
        let of_key = || self.origins.get(*keys.first()?);
        of_policy.or_else(of_key).unwrap_or(&self.origin)
    }

    /// Replaces a value by that of a variable.
    pub(super) fn set(&mut self, key: &'static str, value: Value, variable: String) {
        self.table.insert(key.to_owned(), value);
        self.variables.insert(key, variable);
    }

    /// The whole document as a value.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T> {
        let value = Value::Table(self.table.clone());
        serde_path_to_error::deserialize(value).map_err(|error| {
            let keys = error.path().iter().filter_map(|segment| match segment {
                Segment::Map { key } => Some(key.as_str()),
                _ => None,
            });
            self.explain(error.inner().message(), &keys.collect::<Vec<_>>())
        })
    }

    /// What errors call a key, or a table: `ttl in [locks.payout] of leasehold.toml`.
    pub(crate) fn place(&self, keys: &[&str]) -> String {
        let origin = self.origin_of(keys);
        match keys {
            [] => origin.to_owned(),
            [key] => self.variables.get(key).cloned().unwrap_or_else(|| format!("{key} in {origin}")),
            [kind, name] => format!("[{kind}.{name}] of {origin}"),
            [tables @ .., key] => format!("{key} in {}", self.place(tables)),
        }
    }

    /// An error of serde, which knows neither the file nor what must not be shown.
    fn explain(&self, message: &str, keys: &[&str]) -> Error {
        let mut named = message.split('`').skip(1).step_by(2);
        if message.starts_with("unknown field")
            && let (Some(unknown), Some((_, tables))) = (named.next(), keys.split_last())
        {
            let what = format!("key in {}", self.place(tables));
            return Error::invalid(what, quoted(unknown), one_of(unknown, named));
        }
        if message.starts_with("missing field") {
            let missing = named.next().unwrap_or_default();
            let example = if missing == "ttl" { "ttl = \"24h\"" } else { "key = \"deal:{deal_id}\"" };
            return Error::invalid(self.place(keys), format!("without {missing}"), example);
        }
        let value =
            keys.iter().try_fold(&Value::Table(self.table.clone()), |value, key| value.get(key)).cloned();
        let got = match value {
            // A value of the wrong type may be anything, also a URL with a password.
            Some(value) if message.starts_with("invalid type") => format!("<{}>", value.type_str()),
            Some(Value::String(text)) => quoted(&text),
            Some(value) => quoted(&value.to_string()),
            None => String::new(),
        };
        let expected = match message.rsplit_once(", expected ").map_or(message, |(_, expected)| expected) {
            "usize" => "a whole number".into(),
            "a nonzero u32" => "a whole number from 1".into(),
            "a boolean" => "true or false".into(),
            "a string" => "text in quotes".into(),
            "a map" => format!("tables such as [{}.NAME]", keys.join(".")),
            other => other.replace('`', "\""),
        };
        Error::invalid(self.place(keys), got, expected)
    }
}

/// Why others than the user and root could have written a file or a folder.
#[cfg(unix)]
pub(super) fn written_by_others(path: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let shown = path.display();
    let found = match fs::metadata(path) {
        Ok(found) => found,
        Err(error) => return Some(format!("{shown} cannot be examined ({error})")),
    };
    let trusted = [0, rustix::process::geteuid().as_raw()];
    if !trusted.contains(&found.uid()) {
        return Some(format!("{shown} belongs to another user (uid {})", found.uid()));
    }
    (found.mode() & 0o022 != 0).then(|| format!("{shown} can be written by others (chmod go-w)"))
}

#[cfg(not(unix))]
pub(super) fn written_by_others(_: &Path) -> Option<String> {
    None
}

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

/// A duration in a file. A number is read as text without a unit, to get the hint about it.
pub(crate) fn duration<'de, D: Deserializer<'de>, T: From<Duration>>(from: D) -> Result<T, D::Error> {
    written(from, parse_duration).map(T::from)
}

/// A number of replicas in a file.
pub(crate) fn acks<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Acks>, D::Error> {
    written(from, str::parse).map(Some)
}

/// The format of a lock in a file.
pub(crate) fn format<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Format>, D::Error> {
    written(from, str::parse).map(Some)
}

/// A value that is written as text, or as a number.
pub(crate) fn written<'de, D: Deserializer<'de>, T>(
    from: D,
    parse: impl FnOnce(&str) -> Result<T>,
) -> Result<T, D::Error> {
    let text = match Value::deserialize(from)? {
        Value::String(text) => text,
        other => other.to_string(),
    };
    parse(&text).map_err(|error| match error {
        Error::Invalid { expected, .. } => D::Error::custom(format!("invalid value, expected {expected}")),
        other => D::Error::custom(other),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Read {
        #[serde(default, deserialize_with = "duration")]
        ttl: Option<Duration>,
        count: Option<usize>,
        flag: Option<bool>,
        text: Option<String>,
        #[serde(default)]
        locks: BTreeMap<String, BTreeMap<String, String>>,
    }

    fn read(text: &str) -> Result<Read> {
        Document::parse(text, "x.toml")?.read()
    }

    #[test]
    fn values_are_read_by_type() {
        let top = read("ttl = \"30s\"\ncount = 3\nflag = true\ntext = \"a\"\n[locks.a]\n[locks.b]").unwrap();
        assert_eq!((top.ttl, top.count), (Some(Duration::from_secs(30)), Some(3)));
        assert_eq!((top.flag, top.text.as_deref(), top.locks.len()), (Some(true), Some("a"), 2));
    }

    #[test]
    fn a_wrong_type_says_where_it_is_and_what_is_expected() {
        for (text, place, expected) in [
            ("ttl = 30", "ttl in x.toml \"30\"", "a number with a unit, such as 30s or 30ms"),
            ("ttl = true", "ttl in x.toml \"true\"", "a number with a unit of"),
            ("ttl = \"soon\"", "ttl in x.toml \"soon\"", "a number with a unit of"),
            ("count = -1", "count in x.toml \"-1\"", "a whole number"),
            ("count = 1.5", "count in x.toml \"<float>\"", "a whole number"),
            ("flag = \"secret\"", "flag in x.toml \"<string>\"", "true or false"),
            ("text = [\"secret\"]", "text in x.toml \"<array>\"", "text in quotes"),
            ("locks = \"secret\"", "locks in x.toml \"<string>\"", "tables such as [locks.NAME]"),
            ("locks.a = \"secret\"", "[locks.a] of x.toml \"<string>\"", "tables such as [locks.a.NAME]"),
        ] {
            let error = read(text).expect_err(text).to_string();
            assert!(error.contains(place) && error.contains(&format!("expected {expected}")), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn an_unknown_key_names_the_known_ones_and_the_nearest() {
        let error = read("tll = 1").unwrap_err().to_string();
        let expected = "expected one of count, flag, locks, text, ttl; did you mean \"ttl\"?";
        assert_eq!(error, format!("invalid key in x.toml \"tll\": {expected}"));
    }

    #[test]
    fn bad_toml_names_the_line_and_quotes_none_of_it() {
        let text = read("\n\ntext = 'redis://:secret@h").unwrap_err().to_string();
        assert!(text.contains("x.toml line 3") && !text.contains("secret"), "{text}");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let text = Document::load(Path::new("no/such/file.toml")).unwrap_err().to_string();
        assert!(text.contains("no/such/file.toml"), "{text}");
        let text = Document::load(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(text.contains("at most 1 MiB"), "{text}");
    }

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
