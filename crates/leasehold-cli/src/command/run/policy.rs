//! Locks by policy: the name comes from a template, the ttl from the policy.

use std::{ffi::OsStr, time::Duration};

use leasehold::Error;

use crate::exit::Failure;

/// What a policy says about one lock.
pub(super) struct Rendered {
    pub(super) name: String,
    pub(super) ttl: Option<Duration>,
}

/// A `key=value` word.
pub(super) fn pair(word: &OsStr) -> Option<(&str, &str)> {
    let (key, value) = word.to_str()?.split_once('=')?;
    let is_key = !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-');
    is_key.then_some((key, value))
}

/// Fills in a policy's template.
pub(super) fn render(policy: &str, _words: &[std::ffi::OsString]) -> Result<Rendered, Failure> {
    let what = format!("the policy \"{}\"", crate::output::clean(policy));
    Err(Failure::from(Error::unsupported(what, "this build has no policies"))
        .hint("give the lock's name and --ttl instead"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_has_a_plain_key() {
        assert_eq!(pair("deal_id=42".as_ref()), Some(("deal_id", "42")));
        assert_eq!(pair("a=b=c".as_ref()), Some(("a", "b=c")));
        assert_eq!(pair("a=".as_ref()), Some(("a", "")));
        for word in ["=x", "ls", "./a=b", "a b=c"] {
            assert_eq!(pair(word.as_ref()), None);
        }
    }
}
