//! How locks and records lie in Redis.
//!
//! A lock itself is a plain string under `prefix + name`, as in many other libraries, so that a fleet can mix them; a
//! record is one under its key as given. Everything else lies in side keys in the same slot, under a prefix of their own,
//! where no lock name can collide with them and a scan for locks does not see them.

use std::borrow::Cow;

use bytes::BufMut;
use redis::{RedisWrite, ToRedisArgs};

use super::slots;
use leasehold_core::{
    engine::{EngineError, Fault},
    error::Error,
    name::{Name, hash_tag},
};

/// What precedes the channels and the fencing tokens of Redisson's locks.
pub(super) const REDISSON_CHANNEL: &str = "redisson_lock__channel:";
pub(super) const REDISSON_TOKEN: &str = "redisson_lock_token:";

/// A prefix is part of every key, so the rule for names holds for it: with a stray `}` a lock and its queue would be torn
/// apart.
pub(super) fn check_prefix(prefix: &str) -> Result<(), Error> {
    match Name::new(format!("{prefix}x")) {
        Err(Error::Invalid { got, expected, .. }) => Err(Error::invalid("prefix", got, expected)),
        name => name.map(drop),
    }
}

macro_rules! side_keys {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        pub(super) fn $name(&self) -> SideKey<'_> {
            SideKey([concat!("leasehold:", stringify!($name), ":"), self.tail(), "", ""])
        }
    )*};
}

/// The keys of one lock, or of one record.
#[derive(Clone)]
pub(super) struct Keys {
    /// K in braces.
    braced: String,
    /// K has a hash tag of its own.
    has_tag: bool,
}

impl Keys {
    pub(super) fn new(prefix: &str, name: &Name) -> Self {
        let mut braced = String::with_capacity(prefix.len() + name.as_str().len() + 2);
        for part in ["{", prefix, name.as_str(), "}"] {
            braced.push_str(part);
        }
        let has_tag = hash_tag(&braced[1..braced.len() - 1]).is_some();
        Self { braced, has_tag }
    }

    /// The keys of a record.
    pub(super) fn of_record(key: &Name) -> Self {
        Self::new("", key)
    }

    /// K: the owner value, expiring with the lease; or the record.
    pub(super) fn lock(&self) -> &str {
        &self.braced[1..self.braced.len() - 1]
    }

    /// What side keys end with: K in braces, or K alone if it has a hash tag of its own.
    fn tail(&self) -> &str {
        if self.has_tag { self.lock() } else { &self.braced }
    }

    /// The slot of a cluster that all of them are in.
    pub(super) fn slot(&self) -> u16 {
        slots::slot(self.lock())
    }

    /// Refused if this lock's keys could be those of another one. Only a short prefix makes it possible.
    pub(super) fn checked(self) -> Result<Self, EngineError> {
        let lock = self.lock();
        let why = if lock.starts_with("leasehold:") {
            "keys that begin with leasehold: are kept for the library's own; use another name or prefix"
        } else if self.has_tag && lock.starts_with('{') && lock.find('}') == Some(lock.len() - 1) {
            "a key that is nothing but a hash tag shares its queue with the key inside of it; use a prefix"
        } else {
            return Ok(self);
        };
        Err(EngineError::new(Fault::Unsupported, why))
    }

    /// F: the last fence of the server; in a cluster, of the slot.
    pub(super) fn counter(&self, by_slot: bool) -> Cow<'static, str> {
        match by_slot {
            false => "leasehold:fence".into(),
            true => format!("leasehold:fence:{{{}}}", slots::tag_of(self.slot())).into(),
        }
    }

    side_keys! {
        /// F of this name alone, on a node of a quorum.
        fence
        /// B: the fence of the last that began under a record's key.
        begun
        /// W: the waiters in order of arrival.
        waiters
        /// S: when each waiter was last heard of.
        seen
        /// Z: those who hold the lock together, by the end of their leases.
        ends
        /// H: what is known about each of them.
        members
        /// L: how many permits there are.
        limit
        /// V: who watches a record.
        watchers
        /// N: holder data of a lock in Redisson's format.
        holder
        /// D: a latch.
        latch
        /// Its participants, by the end of their leases.
        latch_ends
        /// What is known about each of them.
        latch_parties
        /// Who waits for it.
        latch_waiters
    }

    /// C: where Redisson announces releases of a lock.
    pub(super) fn redisson_channel(&self) -> String {
        format!("{REDISSON_CHANNEL}{}", self.redisson_tail())
    }

    /// T: the last fencing token of a lock in Redisson's format.
    pub(super) fn redisson_token(&self) -> SideKey<'_> {
        SideKey([REDISSON_TOKEN, self.redisson_tail(), "", ""])
    }

    /// What Redisson's side keys end with: it adds braces unless there is one already, whether that begins a hash tag or not.
    fn redisson_tail(&self) -> &str {
        if self.lock().contains('{') { self.lock() } else { &self.braced }
    }

    /// Refused if Redisson's keys of this lock are in several slots of a cluster.
    pub(super) fn checked_for_redisson(self, in_cluster: bool) -> Result<Self, EngineError> {
        if in_cluster && !self.has_tag && self.lock().contains('{') {
            let why = "in a cluster Redisson keeps the keys of a name with a brace and without a hash tag in several \
                       slots; leave out the brace, or close it around some text";
            return Err(EngineError::new(Fault::Unsupported, why));
        }
        Ok(self)
    }

    /// G: the tombstone of one attempt.
    pub(super) fn gone<'a>(&'a self, attempt: &'a str) -> SideKey<'a> {
        SideKey(["leasehold:gone:", self.tail(), ":", attempt])
    }
}

/// A side key, put together only where it is written into a command.
pub(super) struct SideKey<'a>([&'a str; 4]);

impl ToRedisArgs for SideKey<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        let mut key = out.bufmut_for_next_arg(self.0.iter().map(|part| part.len()).sum());
        for part in self.0 {
            key.put_slice(part.as_bytes());
        }
    }
}

/// A prefix as a pattern for SCAN, with everything that a pattern would read otherwise made literal.
pub(super) fn scan_pattern(prefix: &str) -> String {
    let escape = |c| matches!(c, '*' | '?' | '[' | ']' | '\\' | '^').then_some('\\');
    prefix.chars().flat_map(|c| escape(c).into_iter().chain([c])).chain(['*']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(name: &str) -> Keys {
        Keys::new("lock:", &Name::new(name).unwrap())
    }

    fn written(key: SideKey<'_>) -> String {
        let [key] = <[_; 1]>::try_from(key.to_redis_args()).unwrap();
        String::from_utf8(key).unwrap()
    }

    #[test]
    fn the_lock_is_the_prefix_and_the_name() {
        let keys = keys("x");
        assert_eq!(keys.lock(), "lock:x");
        assert_eq!(written(keys.fence()), "leasehold:fence:{lock:x}");
        assert_eq!(written(keys.waiters()), "leasehold:waiters:{lock:x}");
        assert_eq!(written(keys.seen()), "leasehold:seen:{lock:x}");
        assert_eq!(written(keys.gone("ab")), "leasehold:gone:{lock:x}:ab");
    }

    #[test]
    fn every_key_of_a_lock_has_one_hash_tag() {
        for name in ["x", "{deal}:42", "a{b", "a{b}c}"] {
            let keys = keys(name);
            let place = hash_tag(keys.lock()).unwrap_or(keys.lock());
            assert_eq!(keys.lock(), format!("lock:{name}"));
            let side_keys = [keys.fence(), keys.begun(), keys.waiters(), keys.seen(), keys.gone("0")];
            let of_members = [keys.ends(), keys.members(), keys.limit(), keys.holder()];
            let of_latch = [keys.latch(), keys.latch_ends(), keys.latch_parties(), keys.latch_waiters()];
            assert_eq!(slots::slot(&keys.counter(true)), keys.slot());
            for side in side_keys.into_iter().chain(of_members).chain(of_latch).map(written) {
                assert_eq!(hash_tag(&side), Some(place), "{side}");
            }
        }
    }

    #[test]
    fn redissons_keys_have_its_braces() {
        for (name, tail, in_one_slot) in
            [("x", "{lock:x}", true), ("{deal}:42", "lock:{deal}:42", true), ("a{b", "lock:a{b", false)]
        {
            let keys = keys(name);
            assert_eq!(written(keys.redisson_token()), format!("redisson_lock_token:{tail}"));
            assert_eq!(keys.redisson_channel(), format!("redisson_lock__channel:{tail}"));
            assert_eq!(slots::slot(&keys.redisson_channel()) == keys.slot(), in_one_slot, "{name}");
            assert!(keys.clone().checked_for_redisson(false).is_ok());
            assert_eq!(keys.checked_for_redisson(true).is_ok(), in_one_slot, "{name}");
        }
    }

    #[test]
    fn keys_that_could_be_those_of_another_lock_are_known() {
        let clash = |prefix, name| Keys::new(prefix, &Name::new(name).unwrap()).checked().is_err();
        assert!(clash("", "{x}") && clash("", "leasehold:fence:{x}") && clash("lease", "hold:x"));
        for name in ["x", "{x", "{x}y", "{x}{y}", "y{x}", "leasehold"] {
            assert!(!clash("", name) && !clash("lock:", name), "{name}");
        }
        assert!(!clash("lock:", "{x}") && !clash("lock:", "leasehold:x"));
    }

    #[test]
    fn a_pattern_takes_the_prefix_literally() {
        assert_eq!(scan_pattern("a*[b]?\\"), "a\\*\\[b\\]\\?\\\\*");
    }
}
