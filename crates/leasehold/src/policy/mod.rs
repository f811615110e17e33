//! Named policies: the key schema and the times of every lock of an application, in one file.
//!
//! ```toml
//! [locks.payout]
//! description = "one payout of a deal at a time"
//! key = "payout:{deal_id}"     # the prefix of the store precedes it
//! ttl = "60s"                  # all that follows is optional; code can still change it
//! wait = "5s"
//! retry = "50ms"               # how often to ask while waiting; "100ms..1s" doubles from the first to the last
//! max-attempts = 100
//! keep-alive = false
//! critical = true              # refuses on-outage = "proceed"
//! on-outage = "deny"
//! lock-delay = "0s"
//! acks = 1                     # or "majority": replicas that must have it
//! format = "plain"             # or "redisson": shared with RLock and RFencedLock
//! max-lifetime = "10m"
//! hold-at-least = "0s"
//!
//! [locks.gpu]
//! key = "gpu:{host}"
//! kind = "permits"             # a semaphore; "read" and "write" are the sides of a read-write lock; without it: exclusive
//! of = 4                       # how many permits there are
//! permits = 1                  # how many of them one holder takes
//!
//! [idempotency.payout]         # these two are whole keys, without the prefix
//! key = "idempotency:payout:{deal_id}"
//! ttl = "24h"
//!
//! [markers.processing]
//! key = "processing:{account_id}:{file_hash}"
//! ttl = "5m"
//! ```
//!
//! A typo in a name or a parameter is an error at once and not a second lock beside the right one, and no two tuples of
//! values share a key: `%`, `:`, `{`, `}` and control characters in a value are percent-encoded. `{{` and `}}` are
//! braces of the key itself, for hash tags. A marker and an idempotency policy that could share a key are refused.

mod client;

use std::{collections::BTreeMap, num::NonZeroU32, path::Path, time::Duration};

use leasehold_core::{config::between, template::Template};
use serde::{Deserialize, Deserializer};

pub use client::BoundPolicy;
#[cfg(feature = "blocking")]
pub(crate) use client::{idempotency_key, lock};

use crate::config::file::{Document, acks, duration, format, written};
use crate::config::{Config, WAIT_MAX, parse_duration, settings::replace};
use crate::text::{one_of, quoted};
use crate::{Acks, Error, Format, Mode, Name, OnOutage, Result, Retry, lease::validity::TTL_MIN};

/// For keys without parameters: `policy.key(NO_PARAMETERS)`.
pub const NO_PARAMETERS: [(&str, &str); 0] = [];

/// The policies of one file; [`Leasehold::lock_policy`](crate::Leasehold::lock_policy) has an example.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Policies {
    /// The prefix of lock keys, if the file sets it.
    pub prefix: Option<String>,
    /// The longest ttl, if the file sets it.
    #[serde(default, deserialize_with = "duration")]
    pub max_ttl: Option<Duration>,
    #[serde(default)]
    pub(crate) locks: BTreeMap<String, LockPolicy>,
    #[serde(default)]
    pub(crate) idempotency: BTreeMap<String, RecordPolicy>,
    #[serde(default)]
    pub(crate) markers: BTreeMap<String, RecordPolicy>,
}

/// The policies of each kind: one by its name, and all of them.
macro_rules! kinds {
    ($($one:ident, $all:ident: $policy:ident of $kind:literal in $policies:ident, $what:literal;)+) => {$(
        #[doc = concat!("The policy `[", $kind, ".NAME]`; `invalid` for an unknown name, with all names and the nearest.")]
        pub fn $one(&self, name: &str) -> Result<&$policy> {
            let expected = || one_of(name, self.$policies.keys().map(String::as_str));
            self.$policies.get(name).ok_or_else(|| Error::invalid($what, quoted(name), expected()))
        }

        #[doc = concat!("All policies `[", $kind, ".NAME]`, by name.")]
        pub fn $all(&self) -> impl Iterator<Item = &$policy> {
            self.$policies.values()
        }
    )+};
}

impl Policies {
    /// Reads a text; `origin` is what errors call it. Besides policies it may set `prefix` and `max-ttl`. What is wrong is
    /// `invalid`, with the place and what is expected.
    pub fn parse(text: &str, origin: &str) -> Result<Self> {
        Self::from_document(&Document::parse(text, origin)?)
    }

    /// As [`Policies::parse`] for the text of a file; also `invalid` for a file that cannot be read.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        Self::from_document(&Document::load(path.as_ref())?)
    }

    fn from_document(document: &Document) -> Result<Self> {
        let policies: Self = document.read()?;
        let mut config = Config::default();
        policies.take_over(&mut config);
        policies.checked(document, &config)
    }

    /// Gives every policy its name and its place, and checks it.
    pub(crate) fn checked(mut self, document: &Document, config: &Config) -> Result<Self> {
        for (name, policy) in &mut self.locks {
            policy.place = document.place(&["locks", name]);
            give_name("locks", name, document, &mut policy.name)?;
        }
        for (kind, policies) in [("idempotency", &mut self.idempotency), ("markers", &mut self.markers)] {
            for (name, policy) in policies {
                give_name(kind, name, document, &mut policy.name)?;
                between(&document.place(&[kind, name, "ttl"]), policy.ttl, TTL_MIN, WAIT_MAX)?;
            }
        }
        self.check(config)?;
        Ok(self)
    }

    kinds! {
        lock, locks: LockPolicy of "locks" in locks, "lock policy";
        idempotency, idempotency_keys: RecordPolicy of "idempotency" in idempotency, "idempotency policy";
        marker, markers: RecordPolicy of "markers" in markers, "marker policy";
    }

    /// The names under which locks and requests are counted.
    pub(crate) fn names(&self) -> Vec<String> {
        self.locks.keys().chain(self.idempotency.keys()).cloned().collect()
    }

    /// Applies the prefix and the longest ttl to the settings of a client.
    pub(crate) fn take_over(&self, config: &mut Config) {
        replace(&mut config.prefix, self.prefix.clone());
        replace(&mut config.max_ttl, self.max_ttl);
    }

    /// Checks every time against its range, which depends on the client's settings, and that no two policies share a key:
    /// a mark would count as a request that was executed.
    pub(crate) fn check(&self, config: &Config) -> Result<()> {
        for marker in self.markers.values() {
            if let Some(other) =
                self.idempotency.values().find(|other| other.template.may_equal(&marker.template))
            {
                let what = format!("key of [markers.{}]", marker.name);
                let expected = format!("a key that [idempotency.{}] cannot have", other.name);
                return Err(Error::invalid(what, quoted(marker.template()), expected));
            }
        }
        self.locks.values().try_for_each(|policy| policy.check(config))
    }
}

fn give_name(kind: &str, name: &str, document: &Document, to: &mut String) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if name.is_empty() || !name.bytes().all(is_plain) {
        let what = format!("policy name of {}", document.place(&[kind]));
        return Err(Error::invalid(what, quoted(name), "letters, digits, '-' and '_'"));
    }
    *to = name.to_owned();
    Ok(())
}

/// The key schema of a policy.
fn template<'de, D: Deserializer<'de>>(from: D) -> Result<Template, D::Error> {
    written(from, |text| Template::parse(text, "key"))
}

/// Pauses between two questions: `50ms`, or `100ms..1s` for pauses that double from the first to the last.
fn retry<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Retry>, D::Error> {
    let parse = |text: &str| {
        let read = |text: &str| parse_duration(text.trim());
        let pauses = match text.split_once("..") {
            None => read(text).map(Retry::fixed),
            Some((first, last)) => {
                read(first).and_then(|first| Ok(Retry::exponential(first, 2.0).up_to(read(last)?)))
            }
        };
        let checked = pauses.and_then(|retry| retry.check().map(|()| retry));
        checked
            .map_err(|_| Error::invalid("retry", "", "a pause such as 50ms, or 100ms..1s, from 1ms to 60s"))
    };
    written(from, parse).map(Some)
}

/// How one kind of lock is named and held. What is `None` is up to the client.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, expecting = "a table such as [locks.NAME]")]
#[non_exhaustive]
pub struct LockPolicy {
    /// Its name in the file.
    #[serde(skip)]
    pub name: String,
    /// What it is for.
    #[serde(default)]
    pub description: String,
    #[serde(rename = "key", deserialize_with = "template")]
    template: Template,
    /// Where it stands, for errors.
    #[serde(skip)]
    place: String,
    /// How it is shared; [`LockPolicy::mode`] has it with the numbers of a semaphore.
    #[serde(default)]
    pub kind: PolicyKind,
    /// How many permits of a semaphore one holder takes.
    pub permits: Option<NonZeroU32>,
    /// How many permits a semaphore has.
    pub of: Option<NonZeroU32>,
    /// How long a lease lasts.
    #[serde(default, deserialize_with = "duration")]
    pub ttl: Option<Duration>,
    /// How long to wait for the lock.
    #[serde(default, deserialize_with = "duration")]
    pub wait: Option<Duration>,
    /// How often to ask again while waiting.
    #[serde(default, deserialize_with = "retry")]
    pub retry: Option<Retry>,
    /// How often the store is asked at most.
    pub max_attempts: Option<NonZeroU32>,
    /// Whether the lease is renewed.
    pub keep_alive: Option<bool>,
    /// Whether the work must never run without the lock, as for anything that moves money.
    #[serde(default)]
    pub critical: bool,
    /// What to do when the store is unreachable.
    #[serde(default)]
    pub on_outage: OnOutage,
    /// How long the lock stays unavailable after its lease expired.
    #[serde(default, deserialize_with = "duration")]
    pub lock_delay: Option<Duration>,
    /// How many replicas must acknowledge the lock.
    #[serde(default, deserialize_with = "acks")]
    pub acks: Option<Acks>,
    /// How the lock lies in the store.
    #[serde(default, deserialize_with = "format")]
    pub format: Option<Format>,
    /// The longest time it can be held.
    #[serde(default, deserialize_with = "duration")]
    pub max_lifetime: Option<Duration>,
    /// The shortest time it is held.
    #[serde(default, deserialize_with = "duration")]
    pub hold_at_least: Option<Duration>,
}

/// How the lock of a policy is shared by those who hold it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum PolicyKind {
    /// One holder; also the only kind that needs no word in the file.
    #[default]
    Exclusive,
    /// The shared side of a read-write lock.
    Read,
    /// The exclusive side of a read-write lock.
    Write,
    /// A semaphore.
    Permits,
}

impl LockPolicy {
    /// How its lock is held.
    ///
    /// ```
    /// use leasehold::Policies;
    ///
    /// let text = "[locks.gpu]\nkey = \"gpu\"\nkind = \"permits\"\nof = 4";
    /// let policies = Policies::parse(text, "example")?;
    /// assert_eq!(policies.lock("gpu")?.mode().to_string(), "1 of 4 permits");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn mode(&self) -> Mode {
        match (self.kind, self.of) {
            (PolicyKind::Read, _) => Mode::Shared,
            (PolicyKind::Permits, Some(of)) => {
                Mode::Permits { take: self.permits.unwrap_or(NonZeroU32::MIN), of }
            }
            _ => Mode::Exclusive,
        }
    }

    /// A semaphore has its numbers, and nothing else has any.
    fn check_kind(&self) -> Result<()> {
        let refuse = |key: &str, got: String, expected: String| {
            Err(Error::invalid(format!("{key} in {}", self.place), got, expected))
        };
        match (self.kind, self.of, self.permits) {
            (PolicyKind::Permits, None, _) => {
                let expected = "the number of permits, such as of = 4, because kind is \"permits\"";
                Err(Error::invalid(self.place.clone(), "without of", expected))
            }
            (PolicyKind::Permits, Some(of), Some(permits)) if permits > of => {
                refuse("permits", permits.to_string(), format!("1 to {of}, as of is {of}"))
            }
            (PolicyKind::Permits, ..) | (_, None, None) => Ok(()),
            (_, Some(of), _) => {
                refuse("of", of.to_string(), "it only together with kind = \"permits\"".into())
            }
            (_, None, Some(permits)) => {
                refuse("permits", permits.to_string(), "it only together with kind = \"permits\"".into())
            }
        }
    }

    fn check(&self, config: &Config) -> Result<()> {
        self.check_kind()?;
        if self.critical && self.on_outage == OnOutage::Proceed {
            let what = format!("on-outage in {}", self.place);
            return Err(Error::invalid(what, "proceed", "\"deny\", because the lock is critical"));
        }
        let check = |key: &str, value: Option<Duration>, least: Duration, most: Duration, hint: &str| {
            let Some(value) = value.filter(|value| !(least..=most).contains(value)) else { return Ok(()) };
            let what = format!("{key} in {}", self.place);
            Err(Error::invalid(what, format!("{value:?}"), format!("{least:?} to {most:?}{hint}")))
        };
        let most = config.max_ttl;
        let raise = "; max-ttl can be raised to allow more";
        check("ttl", self.ttl, TTL_MIN, most, raise)?;
        check("wait", self.wait, Duration::ZERO, WAIT_MAX, "")?;
        check("lock-delay", self.lock_delay, Duration::ZERO, most, raise)?;
        check("hold-at-least", self.hold_at_least, Duration::ZERO, most, raise)?;
        let ttl = self.ttl.unwrap_or(config.ttl);
        check("max-lifetime", self.max_lifetime, ttl, WAIT_MAX, "; it cannot be shorter than the ttl")
    }
}

/// How one kind of idempotency key or marker is named and kept: see [`Leasehold::idempotency_policy`](crate::Leasehold::idempotency_policy)
/// and [`Leasehold::marker_policy`](crate::Leasehold::marker_policy). No prefix precedes its keys.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table with key and ttl")]
#[non_exhaustive]
pub struct RecordPolicy {
    /// Its name in the file.
    #[serde(skip)]
    pub name: String,
    /// What it is for.
    #[serde(default)]
    pub description: String,
    #[serde(rename = "key", deserialize_with = "template")]
    pub(crate) template: Template,
    /// How long it is kept.
    #[serde(deserialize_with = "duration")]
    pub ttl: Duration,
}

/// What policies of all kinds have: a key schema.
macro_rules! has_template {
    ($($policy:ident)+) => {$(
        impl $policy {
            /// The key schema as written.
            pub fn template(&self) -> &str {
                self.template.as_str()
            }

            /// The parameters of its key, in order.
            pub fn parameters(&self) -> impl Iterator<Item = &str> {
                self.template.parameters()
            }

            /// The key for these values; `invalid` for a parameter that is missing, unknown, empty or given twice, and for a
            /// key that becomes too long.
            pub fn key<K: AsRef<str>, V: ToString>(&self, values: impl IntoIterator<Item = (K, V)>) -> Result<Name> {
                self.template.render(values).map_err(|error| error.about(format_args!("policy {}", self.name)))
            }
        }

        impl<T> BoundPolicy<'_, $policy, T> {
            /// What the policy describes, for these values of its key. Wrong values are reported when it is used.
            pub fn key<K: AsRef<str>, V: ToString>(&self, values: impl IntoIterator<Item = (K, V)>) -> T {
                (self.make)(self.leases, self.policy, self.policy.key(values))
            }
        }
    )+};
}

has_template! { LockPolicy RecordPolicy }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_takes_over_what_the_file_sets_and_keeps_what_it_does_not() {
        let changed = |text: &str| {
            let mut config = Config::default();
            config.prefix = "own:".into();
            Policies::parse(text, "x.toml").unwrap().take_over(&mut config);
            (config.prefix, config.max_ttl.as_secs())
        };
        assert_eq!(changed(""), ("own:".into(), 300));
        assert_eq!(changed("prefix = \"\""), (String::new(), 300));
        assert_eq!(changed("max-ttl = \"1h\""), ("own:".into(), 3600));
    }
}
