//! Values as people write them, and the words of errors about them. No file format is known here.

use std::str::FromStr;

use crate::{
    engine::{Acks, Format},
    error::{Error, Result},
};

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

/// `plain` or `redisson`.
///
/// ```
/// use leasehold::Format;
///
/// assert_eq!("redisson".parse::<Format>()?, Format::Redisson);
/// # Ok::<(), leasehold::Error>(())
/// ```
impl FromStr for Format {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "plain" => Ok(Self::Plain),
            "redisson" => Ok(Self::Redisson),
            _ => Err(Error::invalid("format", quoted(text), one_of(text, ["plain", "redisson"]))),
        }
    }
}

/// All known words and the one that is probably meant, as the end of a sentence that begins with "expected".
pub fn one_of<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let mut known: Vec<&str> = known.into_iter().collect();
    known.sort_unstable();
    match (&known[..], nearest(word, known.iter().copied())) {
        ([], _) => "none: nothing of this kind is defined".into(),
        ([only], _) => format!("\"{only}\""),
        (_, None) => format!("one of {}", known.join(", ")),
        (_, Some(nearest)) => format!("one of {}; did you mean \"{nearest}\"?", known.join(", ")),
    }
}

/// The known word that is probably meant, if one is near enough.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // What people paste by mistake can be long.
    let word: String = word.chars().take(64).flat_map(char::to_lowercase).collect();
    let distance = |known: &&str| strsim::osa_distance(&word, known);
    known.into_iter().min_by_key(distance).filter(|near| distance(near) <= near.len() / 2)
}

/// Bad input as errors quote it: short, and with what is not printable escaped.
pub fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "\"'\\".contains(c);
    let shown = |c: char| if is_plain(c) { c.to_string() } else { c.escape_debug().to_string() };
    let more = text.chars().nth(64).map(|_| "…".to_owned());
    text.chars().take(64).map(shown).chain(more).collect()
}

/// As much of a text as that many bytes hold, cut between two characters.
pub fn cut(text: &str, most_bytes: usize) -> &str {
    let end = (0..=most_bytes.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

/// The same error, naming another place.
pub fn placed(mut error: Error, place: impl Into<String>) -> Error {
    if let Error::Invalid { what, .. } = &mut error {
        *what = place.into();
    }
    error
}

/// A value that has no JSON.
#[cfg(feature = "json")]
pub(crate) fn no_json(what: impl Into<String>, error: &serde_json::Error) -> Error {
    Error::invalid(what, error.to_string(), "a value that can be written as JSON")
}

/// The URL without its password, for people.
pub fn redact(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        // A name or a path has no secret; anything else may be a URL with a slip in it, password included.
        let is_plain = url.starts_with("memory:") || url.starts_with("sqlite:");
        return printable(&match (url.rfind('@'), url.find('?')) {
            _ if is_plain => url.to_owned(),
            (None, None) => url.to_owned(),
            (Some(at), None) => format!("…{}", &url[at..]),
            (None, Some(query)) => format!("{}?…", &url[..query]),
            (Some(_), Some(_)) => "…".to_owned(),
        });
    };
    // Either a password with a `?`, or a parameter with an `@`, which may be a password too: nobody can tell.
    if rest.split_once('?').is_some_and(|(_, query)| query.contains('@') && query.contains("password")) {
        return printable(&format!("{scheme}://…"));
    }
    // A password may hold any character but `@` unescaped, so the last one before the path ends it.
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let end = rest[end..].rfind('@').map_or(end, |at| end + at + 1).max(end);
    let host = rest[..end].rsplit_once('@').map_or(&rest[..end], |(_, host)| host);
    let path = rest[end..].split(['?', '#']).next().unwrap_or_default();
    printable(&format!("{scheme}://{host}{path}"))
}

fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn quoted_text_cannot_change_how_the_rest_is_shown() {
        assert_eq!(quoted("a\n\u{1b}[31m\u{202e}\u{200b}"), "a\\n\\u{1b}[31m\\u{202e}\\u{200b}");
        assert_eq!(quoted("it's \"ü\" · C:\\"), "it's \"ü\" · C:\\");
        assert_eq!(quoted(&"x".repeat(65)), "x".repeat(64) + "…");
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

    #[test]
    fn a_redacted_url_keeps_the_place_and_drops_the_secrets() {
        for (url, shown) in [
            ("redis://u:secret@h:1/2?ca=x", "redis://h:1/2"),
            ("redis://:se@cret@h", "redis://h"),
            ("redis://:se/cret@h/0", "redis://h/0"),
            ("redis://h", "redis://h"),
            ("redis:/u:secret@h", "…@h"),
            ("u:secret@h:6379", "…@h:6379"),
            ("h:6379?password=secret", "h:6379?…"),
            ("u:se?cret@h", "…"),
            ("sqlite:a@b?shared-by=host", "sqlite:a@b?shared-by=host"),
            ("redis://h\n/0", "redis://h/0"),
            ("redis-sentinel://u:secret@a:1,b/n/2?sentinel-password=secret", "redis-sentinel://a:1,b/n/2"),
            ("redis-sentinel://a/n?sentinel-password=se@cret", "redis-sentinel://…"),
            ("sqlite:/var/x.db", "sqlite:/var/x.db"),
            ("memory:", "memory:"),
        ] {
            assert_eq!(redact(url), shown);
        }
    }
}
