//! Locks by policy: the name and the defaults of all flags come from `leasehold.toml`.

use std::ffi::{OsStr, OsString};

use leasehold::{
    Policies,
    policy::{LockPolicy, NO_PARAMETERS},
};

use crate::exit::Failure;

/// A policy with its values filled in.
pub(super) struct Filled<'a> {
    pub(super) name: String,
    pub(super) policy: &'a LockPolicy,
}

/// A `key=value` word.
pub(super) fn pair(word: &OsStr) -> Option<(&str, &str)> {
    let (key, value) = word.to_str()?.split_once('=')?;
    let is_key = !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || c == '_');
    is_key.then_some((key, value))
}

/// Finds a policy and fills in its template.
pub(super) fn fill<'a>(
    policies: &'a Policies,
    policy: &str,
    words: &[OsString],
) -> Result<Filled<'a>, Failure> {
    if policies.locks().next().is_none() {
        return Err(Failure::usage(
            format!("there is no policy \"{}\": no policies were found", crate::output::clean(policy)),
            "write [locks.NAME] tables into leasehold.toml, or point LEASEHOLD_CONFIG at a file with some",
        ));
    }
    let policy = policies.lock(policy)?;
    let values = words.iter().map(|word| value(word)).collect::<Result<Vec<_>, _>>()?;
    let name = if values.is_empty() { policy.key(NO_PARAMETERS)? } else { policy.key(values)? };
    Ok(Filled { name: name.to_string(), policy })
}

fn value(word: &OsStr) -> Result<(&str, &str), Failure> {
    pair(word).ok_or_else(|| {
        let word = crate::output::clean(&word.to_string_lossy());
        Failure::usage(
            format!("\"{word}\" is no KEY=VALUE for the name of the lock, and the command comes after --"),
            format!("leasehold run --policy POLICY [KEY=VALUE]... -- {word}"),
        )
    })
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

    #[test]
    fn values_make_the_name() {
        let policies = Policies::parse("[locks.payout]\nkey = 'payout:{deal}'", "x").unwrap();
        let name = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            fill(&policies, "payout", &words).map(|filled| filled.name)
        };
        assert_eq!(name(&["deal=42"]).unwrap(), "payout:42");
        assert!(name(&[]).is_err() && name(&["dael=42"]).is_err());
    }
}
