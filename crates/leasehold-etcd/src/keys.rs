//! Names of keys, and what they mean.
//!
//! | key | what |
//! |---|---|
//! | `PREFIX NAME/ATTEMPT` | an attempt, attached to a lease of its own: `leasehold-lock:1 MODE HOLDER` |
//! | `leasehold:limit:PREFIX NAME` | how many permits a semaphore has: `NOW FIRST HELD-UP-TO` |
//! | `KEY` | a record or a mark, as in every store |
//! | `leasehold:begun:KEY` | the fence of the last that began under this key |
//!
//! ATTEMPT is a digest of the owner value's random part, so the secret is not in the store. In NAME a `/` is written
//! `%2F` and a `%` is written `%25`: no name is the beginning of another one's keys.

use std::fmt::Write;

use leasehold_core::{
    error::{Error, Result},
    name::{NAME_MAX_BYTES, Name},
    owner::Owner,
};
use percent_encoding::{AsciiSet, percent_decode_str, utf8_percent_encode};
use sha2::{Digest, Sha256};

const ESCAPED: &AsciiSet = &AsciiSet::EMPTY.add(b'%').add(b'/');
const LIMIT: &str = "leasehold:limit:";
const BEGUN: &str = "leasehold:begun:";
/// Hexadecimal digits of an attempt.
const ATTEMPT_BYTES: usize = 32;

/// Checks what precedes every name.
pub(crate) fn check_prefix(prefix: &str) -> Result<()> {
    let expected = if prefix.len() >= NAME_MAX_BYTES {
        "fewer than 512 bytes, so that names have room"
    } else if prefix.chars().any(char::is_control) {
        "printable text without control characters"
    } else if prefix.starts_with("leasehold:") {
        "not leasehold:, where the store keeps what belongs to locks"
    } else {
        return Ok(());
    };
    Err(Error::invalid("prefix", prefix, expected))
}

/// All keys that begin like this, as the first one and the end of the range.
pub(crate) fn range_of(start: &str) -> (Vec<u8>, Vec<u8>) {
    let mut end = start.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return (start.into(), end);
        }
    }
    // A zero byte stands for all keys.
    (if start.is_empty() { vec![0] } else { start.into() }, vec![0])
}

/// The keys of one name.
pub(crate) struct Keys {
    /// What the keys of its attempts begin with.
    attempts: String,
    /// Where the limit of its permits lies.
    pub(crate) limit: Vec<u8>,
}

impl Keys {
    pub(crate) fn new(prefix: &str, name: &Name) -> Self {
        let name = utf8_percent_encode(name.as_str(), ESCAPED);
        let limit = format!("{LIMIT}{prefix}{name}").into_bytes();
        Self { attempts: format!("{prefix}{name}/"), limit }
    }

    /// The keys of all attempts.
    pub(crate) fn range(&self) -> (Vec<u8>, Vec<u8>) {
        range_of(&self.attempts)
    }

    /// The key of one attempt.
    pub(crate) fn attempt(&self, owner: &Owner) -> Vec<u8> {
        let digest = Sha256::digest(owner.id_text());
        let mut key = self.attempts.clone();
        for byte in &digest[..ATTEMPT_BYTES / 2] {
            write!(key, "{byte:02x}").expect("writing to a string cannot fail");
        }
        key.into_bytes()
    }
}

/// The keys of all names that begin like this.
pub(crate) fn names_range(prefix: &str, names: &str) -> (Vec<u8>, Vec<u8>) {
    range_of(&format!("{prefix}{}", utf8_percent_encode(names, ESCAPED)))
}

/// The name that a key's attempt is of; nothing for keys of others.
pub(crate) fn name_of(prefix: &str, key: &[u8]) -> Option<Name> {
    let (name, attempt) = std::str::from_utf8(key).ok()?.strip_prefix(prefix)?.split_once('/')?;
    if attempt.contains('/') {
        return None;
    }
    let decoded = percent_decode_str(name).decode_utf8().ok()?;
    Name::new(decoded).ok()
}

/// Whether a key lies deeper than those of attempts, as a client with a longer prefix has them.
pub(crate) fn is_deeper(start: &[u8], key: &[u8]) -> bool {
    key.get(start.len()..).is_none_or(|rest| rest.contains(&b'/'))
}

/// Whether a key is the engine's own.
pub(crate) fn is_side_key(key: &str) -> bool {
    key.starts_with(LIMIT) || key.starts_with(BEGUN)
}

/// Where the fence of the last execution under a key lies.
pub(crate) fn begun(key: &Name) -> Vec<u8> {
    format!("{BEGUN}{key}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::owner::Holder;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn no_name_is_the_beginning_of_another_one_s_keys() {
        let owner = Owner::new(7, &Holder::Foreign);
        let (start, end) = Keys::new("lock:", &name("a")).range();
        for other in ["a/b", "a%2Fb", "a/", "aa", "a0", "a."] {
            let key = Keys::new("lock:", &name(other)).attempt(&owner);
            assert!(!(key >= start && key < end), "{other}");
            assert_eq!(name_of("lock:", &key), Some(name(other)));
        }
        let own = Keys::new("lock:", &name("a")).attempt(&owner);
        assert!(own >= start && own < end && !is_deeper(&start, &own));
        assert!(is_deeper(&start, b"lock:a/b/c"));
    }

    #[test]
    fn the_key_of_an_attempt_hides_its_secret() {
        let owner = Owner::new(0xfeed_beef, &Holder::Foreign);
        let key = String::from_utf8(Keys::new("", &name("a")).attempt(&owner)).unwrap();
        assert!(key.len() == 2 + ATTEMPT_BYTES && !key.contains("feedbeef"), "{key}");
    }

    #[test]
    fn a_range_ends_behind_the_last_key_that_begins_like_it() {
        assert_eq!(range_of("a/"), (b"a/".to_vec(), b"a0".to_vec()));
        assert_eq!(range_of(""), (vec![0], vec![0]));
    }
}
