//! How a lock is held: alone, as one of many readers, or by some of a number of permits.

use std::num::NonZeroU32;

use clap::Args;
use leasehold::{
    Mode,
    policy::{LockPolicy, PolicyKind},
};

use crate::{exit::Failure, hint::word};

/// The options of every command that takes a lock.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Sharing {
    /// Be one of many readers: they hold the lock together, and nobody without this option beside them
    #[arg(short, long, conflicts_with_all = ["permits", "of"])]
    shared: bool,

    /// Take this many permits of a semaphore [default: 1]
    #[arg(long, value_name = "N", value_parser = number, allow_hyphen_values = true)]
    permits: Option<NonZeroU32>,

    /// Be one of the holders of a semaphore that has this many permits
    #[arg(long, value_name = "M", value_parser = number, allow_hyphen_values = true)]
    of: Option<NonZeroU32>,
}

/// A number of permits.
pub(crate) fn number(text: &str) -> Result<NonZeroU32, &'static str> {
    text.parse().map_err(|_| "expected a whole number from 1 to 4294967295")
}

impl Sharing {
    /// The mode that was asked for: a flag wins over the policy, but none makes a lock a semaphore or the other way round,
    /// because everybody else who uses the policy would be refused.
    pub(crate) fn mode(self, name: &str, policy: Option<&LockPolicy>) -> Result<Mode, Failure> {
        let Self { shared, permits, of } = self;
        let is_semaphore = policy.is_some_and(|policy| policy.kind == PolicyKind::Permits);
        if let (Some(policy), true) = (policy, shared && is_semaphore) {
            return Err(Failure::usage(
                format!("--shared is for locks, and the policy \"{}\" is a semaphore", policy.name),
                "leave --shared out, or choose a policy with kind = \"read\"",
            ));
        }
        if let (Some(policy), false, true) = (policy, is_semaphore, permits.is_some() || of.is_some()) {
            let option = if of.is_some() { "--of" } else { "--permits" };
            return Err(Failure::usage(
                format!("{option} is for semaphores, and the policy \"{}\" is a lock", policy.name),
                "leave it out, or write kind = \"permits\" and of = N into the policy",
            ));
        }
        if shared {
            return Ok(Mode::Shared);
        }
        let of_policy = policy.map(LockPolicy::mode);
        let (take, of) = match (of_policy, permits, of) {
            (Some(Mode::Permits { take, of: all }), permits, of) => {
                (permits.unwrap_or(take), of.unwrap_or(all))
            }
            (_, permits, Some(of)) => (permits.unwrap_or(NonZeroU32::MIN), of),
            (_, Some(permits), None) => {
                return Err(Failure::usage(
                    format!(
                        "--permits {permits} of how many? The number of permits of the semaphore is missing"
                    ),
                    format!("for example --permits {permits} --of {}", permits.saturating_add(2)),
                ));
            }
            (of_policy, None, None) => return Ok(of_policy.unwrap_or_default()),
        };
        if take > of {
            return Err(Failure::usage(
                format!("{take} permits were asked for, and the semaphore \"{name}\" has {of}"),
                format!(
                    "ask for 1 to {of}; `leasehold semaphore set-limit {} N` changes how many there are",
                    word(name)
                ),
            ));
        }
        Ok(Mode::Permits { take, of })
    }
}

#[cfg(test)]
mod tests {
    use leasehold::Policies;

    use super::*;

    fn mode(shared: bool, permits: u32, of: u32, policy: Option<&str>) -> Result<String, Failure> {
        let text = "[locks.plain]\nkey = 'a'\n[locks.read]\nkey = 'a'\nkind = 'read'\n\
                    [locks.gpu]\nkey = 'b'\nkind = 'permits'\nof = 4\npermits = 2";
        let policies = Policies::parse(text, "x").unwrap();
        let policy = policy.map(|name| policies.lock(name).unwrap());
        let sharing = Sharing { shared, permits: NonZeroU32::new(permits), of: NonZeroU32::new(of) };
        sharing.mode("x", policy).map(|mode| mode.to_string())
    }

    #[test]
    fn a_flag_wins_over_the_policy_as_long_as_it_is_of_its_kind() {
        assert_eq!(mode(false, 0, 0, None).unwrap(), "exclusive");
        assert_eq!(mode(true, 0, 0, None).unwrap(), "shared");
        assert_eq!(mode(false, 0, 3, None).unwrap(), "1 of 3 permits");
        assert_eq!(mode(false, 2, 3, None).unwrap(), "2 of 3 permits");
        assert_eq!(mode(false, 0, 0, Some("read")).unwrap(), "shared");
        assert_eq!(mode(true, 0, 0, Some("plain")).unwrap(), "shared");
        assert_eq!(mode(false, 0, 0, Some("gpu")).unwrap(), "2 of 4 permits");
        assert_eq!(mode(false, 1, 0, Some("gpu")).unwrap(), "1 of 4 permits");
        assert_eq!(mode(false, 0, 8, Some("gpu")).unwrap(), "2 of 8 permits");
    }

    #[test]
    fn what_can_never_be_granted_is_refused_before_anything_is_sent() {
        for (shared, permits, of, policy) in [
            (false, 2, 0, None),
            (false, 4, 3, None),
            (false, 5, 0, Some("gpu")),
            (true, 0, 0, Some("gpu")),
            (false, 0, 3, Some("plain")),
            (false, 1, 0, Some("read")),
        ] {
            assert!(mode(shared, permits, of, policy).is_err(), "{shared} {permits} {of} {policy:?}");
        }
    }
}
