//! The policy file of a demo, as its processes use it: with keys of this run only, and with time that runs faster.
//!
//! This is the only place where a demo's times differ from its file.

use std::{path::Path, time::Duration};

use leasehold::{Policies, policy::LockPolicy};
use toml::{Table, Value};

use crate::Result;

/// How many times faster than in the file time passes: a killed worker delays others for a second or two, not for half of
/// the show.
const FASTER: u32 = 30;
/// No time becomes shorter than this: the machine may be busy.
const LEAST: Duration = Duration::from_secs(1);
/// How the two are told.
pub(crate) const PACE: &str = "times / 30, none below 1 s";

/// A policy file that a demo has with it.
pub(crate) struct PolicyFile {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
    /// A variable that replaces the ttl of all locks, in milliseconds.
    pub(crate) ttl_variable: Option<&'static str>,
}

/// The policies of one run.
pub(crate) struct Live {
    /// What the processes of this run parse.
    pub(crate) text: String,
    /// The file they come from.
    pub(crate) origin: String,
}

/// A time of the file, as it is in a demo.
pub(crate) fn faster(time: Duration) -> Duration {
    (time / FASTER).max(time.min(LEAST))
}

/// What precedes all keys of a run.
pub(crate) fn prefix(run: &str) -> String {
    format!("demo:{run}:")
}

impl PolicyFile {
    /// The policies for a run, from this file or from another with the same policies.
    pub(crate) fn live(
        &self,
        other: Option<&Path>,
        run: &str,
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<Live> {
        let (text, origin) = match other {
            Some(path) => {
                let read = std::fs::read_to_string(path);
                (read.map_err(|error| format!("{}: {error}", path.display()))?, path.display().to_string())
            }
            None => (self.text.to_owned(), format!("policies/{}", self.name)),
        };
        // Also checks it.
        let policies = Policies::parse(&text, &origin)?;
        self.check_names(&policies, &origin)?;
        let ttl =
            self.ttl_variable.and_then(|name| Some((name, env(name).filter(|value| !value.is_empty())?)));
        let ttl = ttl.map(|(name, ms)| {
            ms.parse().map(Duration::from_millis).map_err(|_| format!("{name}={ms}: expected milliseconds"))
        });
        let ttl = ttl.transpose()?;
        let mut table: Table = text.parse()?;
        let run = prefix(run);
        let of_locks = policies.prefix.as_deref().unwrap_or("lock:").replace('{', "{{").replace('}', "}}");
        for lock in policies.locks() {
            let entry = entry(&mut table, "locks", &lock.name)?;
            set(entry, "key", format!("{run}{of_locks}{}", lock.template()));
            for (key, time) in times(lock) {
                set(entry, key, written(faster(time)));
            }
            if let Some(ttl) = ttl {
                set(entry, "ttl", written(ttl));
            }
        }
        let requests = policies.idempotency_keys().map(|policy| ("idempotency", policy));
        let marks = policies.markers().map(|policy| ("markers", policy));
        for (kind, policy) in requests.chain(marks) {
            let entry = entry(&mut table, kind, &policy.name)?;
            set(entry, "key", format!("{run}{}", policy.template()));
            set(entry, "ttl", written(faster(policy.ttl)));
        }
        set(&mut table, "prefix", String::new());
        Ok(Live { text: table.to_string(), origin })
    }

    /// Another file must have what the demo asks for.
    fn check_names(&self, given: &Policies, origin: &str) -> Result<()> {
        let own = Policies::parse(self.text, self.name)?;
        let missing = own
            .locks()
            .map(|policy| ("locks", &policy.name, given.lock(&policy.name).is_err()))
            .chain(own.markers().map(|policy| ("markers", &policy.name, given.marker(&policy.name).is_err())))
            .chain(
                own.idempotency_keys()
                    .map(|policy| ("idempotency", &policy.name, given.idempotency(&policy.name).is_err())),
            )
            .find(|(.., is_missing)| *is_missing);
        match missing {
            Some((kind, name, _)) => {
                Err(format!("{origin} has no [{kind}.{name}], which this demo uses").into())
            }
            None => Ok(()),
        }
    }
}

fn times(lock: &LockPolicy) -> impl Iterator<Item = (&'static str, Duration)> {
    let all = [
        ("ttl", lock.ttl),
        ("wait", lock.wait),
        ("lock-delay", lock.lock_delay),
        ("max-lifetime", lock.max_lifetime),
        ("hold-at-least", lock.hold_at_least),
    ];
    all.into_iter().filter_map(|(key, time)| Some((key, time?)))
}

fn written(time: Duration) -> String {
    format!("{}ms", time.as_millis())
}

fn set(table: &mut Table, key: &str, value: String) {
    table.insert(key.into(), Value::String(value));
}

fn entry<'a>(table: &'a mut Table, kind: &str, name: &str) -> Result<&'a mut Table> {
    let entry = table.get_mut(kind).and_then(|kind| kind.get_mut(name)).and_then(Value::as_table_mut);
    entry.ok_or_else(|| format!("no [{kind}.{name}]").into())
}

#[cfg(test)]
mod tests {
    use leasehold::policy::RecordPolicy;

    use super::*;

    fn live(demo: &str, env: impl Fn(&str) -> Option<String>) -> Policies {
        let live = crate::find(demo).unwrap().policies.live(None, "7f", env).unwrap();
        Policies::parse(&live.text, &live.origin).unwrap()
    }

    #[test]
    fn every_key_of_a_run_begins_with_its_prefix_on_every_store() {
        for demo in crate::DEMOS {
            let policies = live(demo.name, |_| None);
            assert_eq!(policies.prefix.as_deref(), Some(""), "{}", demo.name);
            let keys = policies
                .locks()
                .map(LockPolicy::template)
                .chain(policies.idempotency_keys().chain(policies.markers()).map(RecordPolicy::template));
            for key in keys {
                assert!(key.starts_with("demo:7f:"), "{}: {key}", demo.name);
            }
        }
        let product = live("flash-sale", |_| None).lock("product").unwrap().key([("product_id", 3)]).unwrap();
        assert_eq!(product.as_str(), "demo:7f:lock:product:3");
    }

    #[test]
    fn times_run_faster_and_not_too_fast() {
        let s = Duration::from_secs;
        let times = [(0, s(0)), (5, s(1)), (30, s(1)), (60, s(2)), (300, s(10)), (86_400, s(2880))];
        for (secs, expected) in times {
            assert_eq!(faster(s(secs)), expected, "{secs} s");
        }
        assert_eq!(live("escrow", |_| None).lock("payout").unwrap().ttl, Some(s(2)));
        assert_eq!(live("invoices", |_| None).marker("processing").unwrap().ttl, s(10));
    }

    #[test]
    fn lock_ttl_replaces_the_ttl_of_the_flash_sale() {
        let env = |name: &str| (name == "LOCK_TTL").then(|| "2500".to_owned());
        let policies = live("flash-sale", env);
        assert_eq!(policies.lock("product").unwrap().ttl, Some(Duration::from_millis(2500)));
        // It is a variable of that design only.
        assert_eq!(live("crawler", env).lock("domain").unwrap().ttl, Some(Duration::from_secs(1)));
        let wrong = |_: &str| Some("soon".to_owned());
        let error = crate::find("flash-sale").unwrap().policies.live(None, "7f", wrong).err().unwrap();
        assert_eq!(error.to_string(), "LOCK_TTL=soon: expected milliseconds");
    }

    #[test]
    fn another_file_is_used_if_it_has_what_the_demo_asks_for() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mine.toml");
        let crawler = &crate::find("crawler").unwrap().policies;
        std::fs::write(&file, "[locks.domain]\nkey = \"site:{domain}\"\nttl = \"90s\"").unwrap();
        let live = crawler.live(Some(&file), "7f", |_| None).unwrap();
        let policies = Policies::parse(&live.text, &live.origin).unwrap();
        let domain = policies.lock("domain").unwrap();
        assert_eq!(
            (domain.template(), domain.ttl),
            ("demo:7f:lock:site:{domain}", Some(Duration::from_secs(3)))
        );
        std::fs::write(&file, "[locks.domian]\nkey = \"site:{domain}\"").unwrap();
        let error = crawler.live(Some(&file), "7f", |_| None).err().unwrap();
        assert!(error.to_string().ends_with("has no [locks.domain], which this demo uses"), "{error}");
    }
}
