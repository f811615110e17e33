//! Validated lock names.

use std::{fmt, sync::Arc};

use crate::{error::Error, text::quoted};

/// Longest name in bytes, the store's prefix included.
pub const NAME_MAX_BYTES: usize = 512;

/// The name of what is protected, for example `deal:42`.
///
/// A name is 1 to 512 bytes of printable text. A `}` is allowed only as the end of a hash tag such as
/// `{deal}:42`, because stores that place keys by hash tag would otherwise tear a lock and its queue apart.
/// Names are visible in the store, in logs and to operators: keep personal data out of them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// Checks and wraps a name.
    pub fn new(text: impl AsRef<str>) -> Result<Self, Error> {
        let text = text.as_ref();
        let expected = if text.is_empty() {
            "1 to 512 bytes of printable text"
        } else if text.len() > NAME_MAX_BYTES {
            "at most 512 bytes, the store's prefix included"
        } else if text.chars().any(char::is_control) {
            "printable text without control characters"
        } else if text.contains('}') && hash_tag(text).is_none() {
            "a '}' only as the end of a hash tag such as {deal}:42"
        } else {
            return Ok(Self(text.into()));
        };
        Err(Error::invalid("lock name", quoted(text), expected))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The part of a key that decides its place in a sharded store: between the first `{` and the next `}`,
/// unless that is empty.
pub fn hash_tag(key: &str) -> Option<&str> {
    let (tag, _) = key.split_once('{')?.1.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_names_pass() {
        for good in ["deal:42", "a", "größe/Ä ß", "{deal}:42", "a{b", "x{y}z}", &"n".repeat(512)] {
            assert_eq!(Name::new(good).unwrap().as_str(), good);
        }
    }

    #[test]
    fn bad_names_say_what_is_expected() {
        for bad in ["", "a\nb", "a\0", "a}b", "a{}b", &"n".repeat(513)] {
            let text = Name::new(bad).unwrap_err().to_string();
            assert!(text.contains("lock name") && !text.contains('\n') && text.len() < 200, "{text}");
        }
    }

    #[test]
    fn a_hash_tag_is_the_first_non_empty_pair_of_braces() {
        assert_eq!(hash_tag("lock:{deal}:{x}"), Some("deal"));
        assert_eq!(hash_tag("{}{x}"), None);
        assert_eq!(hash_tag("a{b"), None);
    }
}
