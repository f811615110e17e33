//! The key tables that ship under `policies/`, and what a client makes of a policy.

use std::path::{Path, PathBuf};
use std::{collections::BTreeSet, num::NonZeroU32, time::Duration};

use leasehold::{
    Acks, OnOutage, Policies, Retry, Settings,
    config::Sources,
    policy::{LockPolicy, RecordPolicy},
};

/// One line of a design's key table: file, kind and name of the policy, values, the key in the store, its ttl.
type Line =
    (&'static str, &'static str, &'static str, &'static [(&'static str, &'static str)], &'static str, u64);

const TABLE: &[Line] = &[
    ("escrow", "lock", "deal", &[("deal_id", "42")], "lock:deal:42", 30),
    ("escrow", "lock", "payout", &[("deal_id", "42")], "lock:payout:42", 60),
    ("escrow", "lock", "refund", &[("deal_id", "42")], "lock:refund:42", 60),
    ("escrow", "lock", "deposit", &[("deal_id", "42")], "lock:deposit:42", 30),
    ("escrow", "lock", "balance", &[("account_id", "a-7")], "lock:balance:a-7", 10),
    ("escrow", "lock", "outbox", &[], "lock:outbox:poller", 30),
    ("escrow", "lock", "reconciliation", &[], "lock:reconciliation", 300),
    ("escrow", "idempotency", "deposit", &[("tx_hash", "0xfe")], "idempotency:deposit:0xfe", 86_400),
    ("escrow", "idempotency", "payout", &[("deal_id", "42")], "idempotency:payout:42", 86_400),
    ("escrow", "idempotency", "refund", &[("deal_id", "42")], "idempotency:refund:42", 86_400),
    ("escrow", "idempotency", "notify", &[("outbox_id", "9")], "idempotency:notify:9", 86_400),
    ("flash-sale", "lock", "product", &[("product_id", "123")], "lock:product:123", 5),
    (
        "flash-sale",
        "lock",
        "product-stock",
        &[("product_id", "123"), ("current_stock", "100")],
        "lock:product:123:stock:100",
        5,
    ),
    ("flash-sale", "lock", "user", &[("user_id", "7")], "lock:user:7", 5),
    ("recovery", "lock", "recovery", &[("pool", "payments")], "lock:recovery:payments", 60),
    ("crawler", "lock", "domain", &[("domain", "example.com")], "lock:domain:example.com", 30),
    (
        "invoices",
        "lock",
        "invoice-check",
        &[("account_id", "a1"), ("invoice_number", "2024/7"), ("vendor_name", "Müller: Söhne")],
        "invoice_check:a1:2024/7:Müller%3A Söhne",
        5,
    ),
    ("invoices", "lock", "process-invoice", &[("invoice_id", "123")], "process:invoice:123", 10),
    (
        "invoices",
        "marker",
        "processing",
        &[("account_id", "a1"), ("file_hash", "c0ffee")],
        "processing:a1:c0ffee",
        300,
    ),
];

/// Locks without which money could move twice.
const CRITICAL: [&str; 8] =
    ["deal", "payout", "refund", "deposit", "balance", "reconciliation", "product", "product-stock"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies")
}

fn load(file: &str) -> Policies {
    Policies::load(folder().join(format!("{file}.toml"))).unwrap()
}

/// The files by name, without their extension.
fn files() -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let tables = entries.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
    tables.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

#[test]
fn every_key_and_ttl_is_the_one_of_its_design() {
    for (file, kind, name, values, key, secs) in TABLE {
        let policies = load(file);
        let values = values.iter().copied();
        let rendered = match *kind {
            "lock" => {
                let policy = policies.lock(name).unwrap();
                let prefix = policies.prefix.as_deref().unwrap_or("lock:");
                (format!("{prefix}{}", policy.key(values).unwrap()), policy.ttl)
            }
            "idempotency" => record(policies.idempotency(name).unwrap(), values),
            _ => record(policies.marker(name).unwrap(), values),
        };
        assert_eq!(rendered, ((*key).to_owned(), Some(Duration::from_secs(*secs))), "{file} {kind} {name}");
    }
}

fn record<'a>(
    policy: &RecordPolicy,
    values: impl Iterator<Item = (&'a str, &'a str)>,
) -> (String, Option<Duration>) {
    (policy.key(values).unwrap().to_string(), Some(policy.ttl))
}

#[test]
fn the_files_and_the_table_have_the_same_policies() {
    let mut found = BTreeSet::new();
    for file in files() {
        let policies = load(&file);
        found.extend(policies.locks().map(|policy| format!("{file} lock {}", policy.name)));
        found.extend(policies.idempotency_keys().map(|policy| format!("{file} idempotency {}", policy.name)));
        found.extend(policies.markers().map(|policy| format!("{file} marker {}", policy.name)));
    }
    let listed: BTreeSet<_> =
        TABLE.iter().map(|(file, kind, name, ..)| format!("{file} {kind} {name}")).collect();
    assert_eq!(listed.len(), TABLE.len(), "a line is there twice");
    assert_eq!(found, listed);
}

#[test]
fn what_moves_money_is_critical_and_only_invoices_go_on_without() {
    for file in files() {
        for policy in load(&file).locks() {
            let name = policy.name.as_str();
            assert_eq!(policy.critical, CRITICAL.contains(&name), "{file} {name}");
            let expected = if file == "invoices" { OnOutage::Proceed } else { OnOutage::Deny };
            assert_eq!(policy.on_outage, expected, "{file} {name}");
            assert!(!policy.description.is_empty(), "{file} {name}");
        }
    }
}

#[test]
fn each_file_works_as_a_configuration_file_too() {
    for file in files() {
        let path = folder().join(format!("{file}.toml"));
        let settings = Settings::load(&Sources { file: Some(&path), ..Sources::new(&|_| None) }).unwrap();
        assert_eq!(settings.policies.locks().count(), load(&file).locks().count());
        assert_eq!(settings.config.prefix, if file == "invoices" { "" } else { "lock:" });
    }
}

fn refused(text: &str) -> String {
    let error = Policies::parse(text, "p.toml").expect_err(text);
    assert_eq!(error.kind().as_str(), "invalid");
    error.to_string()
}

#[test]
fn a_policy_that_cannot_work_is_refused_with_its_place() {
    let lock = |lines: &str| format!("[locks.payout]\nkey = \"payout:{{deal_id}}\"\n{lines}");
    for (text, why) in [
        (
            lock("critical = true\non-outage = \"proceed\""),
            "invalid on-outage in [locks.payout] of p.toml \"proceed\": expected \"deny\", because the lock is critical",
        ),
        (lock("on-outage = \"wait\""), "expected \"deny\" or \"proceed\""),
        (
            lock("ttl = \"301s\""),
            "invalid ttl in [locks.payout] of p.toml \"301s\": expected 50ms to 300s; max-ttl can be raised to allow more",
        ),
        (lock("ttl = \"49ms\""), "invalid ttl in [locks.payout] of p.toml \"49ms\""),
        (lock("ttl = 30"), "invalid ttl in [locks.payout] of p.toml \"30\": expected a number with a unit"),
        (lock("wait = \"366d\""), "invalid wait in [locks.payout]"),
        (lock("lock-delay = \"301s\""), "invalid lock-delay in [locks.payout]"),
        (
            lock("acks = \"most\""),
            "invalid acks in [locks.payout] of p.toml \"most\": expected 0 to 255, or majority",
        ),
        (lock("acks = true"), "\"true\": expected 0 to 255, or majority"),
        (lock("format = \"redison\""), "did you mean \"redisson\"?"),
        (lock("hold-at-least = \"301s\""), "invalid hold-at-least in [locks.payout]"),
        (
            lock("retry = \"often\""),
            "invalid retry in [locks.payout] of p.toml \"often\": expected a pause such as 50ms",
        ),
        (lock("retry = \"1s..100ms\""), "invalid retry in [locks.payout]"),
        (lock("retry = \"0s\""), "invalid retry in [locks.payout]"),
        (lock("max-attempts = 0"), "invalid max-attempts in [locks.payout]"),
        (lock("ttl = \"10s\"\nmax-lifetime = \"9s\""), "it cannot be shorter than the ttl"),
        (lock("max-lifetime = \"29s\""), "it cannot be shorter than the ttl"),
        (
            lock("keep-alife = true"),
            "invalid key in [locks.payout] of p.toml \"keep-alife\": expected one of acks, ",
        ),
        (lock("keep-alive = \"yes\""), "expected true or false"),
        ("[locks.payout]".into(), "invalid [locks.payout] of p.toml \"without key\""),
        ("[locks.payout]\nkey = \"{a}{b}\"".into(), "invalid key in [locks.payout] of p.toml \"{a}{b}\""),
        ("[locks.\"pay out\"]\nkey = \"a\"".into(), "invalid policy name of locks in p.toml \"pay out\""),
        (
            "[lock.payout]\nkey = \"a\"".into(),
            "invalid key in p.toml \"lock\": expected one of idempotency, locks, markers, max-ttl, prefix; did you mean \"locks\"?",
        ),
        ("locks = 3".into(), "tables such as [locks.NAME]"),
        ("store = \"memory:\"".into(), "invalid key in p.toml \"store\""),
        ("[idempotency.a]\nkey = \"a\"".into(), "invalid [idempotency.a] of p.toml \"without ttl\""),
        ("[markers.a]\nkey = \"a\"\nttl = \"0s\"".into(), "invalid ttl in [markers.a] of p.toml"),
        (
            "[markers.a]\nkey = \"a\"\nttl = \"1s\"\nwait = \"1s\"".into(),
            "invalid key in [markers.a] of p.toml \"wait\"",
        ),
    ] {
        let error = refused(&text);
        assert!(error.contains(why), "{text}\n{error}");
    }
}

#[test]
fn a_longer_ttl_is_allowed_by_max_ttl_in_the_same_file() {
    let text = "max-ttl = \"1h\"\n[locks.a]\nkey = \"a\"\nttl = \"1h\"";
    let policies = Policies::parse(text, "p.toml").unwrap();
    assert_eq!(policies.max_ttl, Some(Duration::from_secs(3600)));
    assert!(refused(&text.replace("ttl = \"1h\"\n", "ttl = \"59m\"\n")).contains("50ms to 3540s"));
}

#[test]
fn an_unknown_policy_names_the_nearest_and_the_others() {
    let policies = load("escrow");
    let error = policies.lock("pay-out").unwrap_err().to_string();
    assert_eq!(
        error,
        "invalid lock policy \"pay-out\": expected one of balance, deal, deposit, outbox, payout, reconciliation, refund; did you mean \"payout\"?"
    );
    assert!(policies.marker("x").unwrap_err().to_string().contains("nothing of this kind is defined"));
    assert!(policies.idempotency("payouts").unwrap_err().to_string().contains("\"payout\""));
}

#[test]
fn a_policy_tells_all_it_was_given() {
    let text = "[locks.a]\nkey = \"a:{x}:{y}:{x}\"\nttl = \"1s\"\nwait = \"2s\"\nkeep-alive = true\n\
                retry = \"100ms..1s\"\nmax-attempts = 100\n\
                lock-delay = \"3s\"\nacks = 2\nmax-lifetime = \"4s\"\nhold-at-least = \"5s\"\ndescription = \"d\"";
    let policies = Policies::parse(text, "p.toml").unwrap();
    let a: &LockPolicy = policies.lock("a").unwrap();
    let secs = |secs| Some(Duration::from_secs(secs));
    assert_eq!((a.ttl, a.wait, a.keep_alive), (secs(1), secs(2), Some(true)));
    assert_eq!((a.lock_delay, a.max_lifetime, a.hold_at_least), (secs(3), secs(4), secs(5)));
    assert_eq!(a.acks, Some(Acks::AtLeast(2)));
    let doubling = Retry::exponential(Duration::from_millis(100), 2.0).up_to(Duration::from_secs(1));
    assert_eq!((a.retry, a.max_attempts.map(NonZeroU32::get)), (Some(doubling), Some(100)));
    assert_eq!((a.description.as_str(), a.template(), a.critical), ("d", "a:{x}:{y}:{x}", false));
    assert_eq!(a.parameters().collect::<Vec<_>>(), ["x", "y"]);
}

#[cfg(feature = "memory")]
mod on_a_client {
    use std::sync::{Arc, Weak};

    use leasehold::{
        Attempt, Clock, Error, Fence, Leasehold, Name, Protection,
        clock::Until,
        engine::{
            Answer, Capabilities, Claim, Engine, EngineError, Fault, Fut, Health, Hold, Inspect, Leases,
            Released, Renewed, WakeSink, memory::Memory,
        },
    };

    use super::*;

    async fn client(text: &str) -> Leasehold {
        let policies = Policies::parse(text, "p.toml").unwrap();
        Leasehold::builder("memory:").clock(Clock::tokio()).policies(policies).connect().await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_policy_that_wants_replicas_is_refused_where_there_are_none() {
        let leases = client("[locks.a]\nkey = \"a\"\nacks = \"majority\"").await;
        let error = leases.lock_policy("a").unwrap().lock().acquire().await.unwrap_err().to_string();
        assert_eq!(error, "waiting for replicas is not supported: memory has no replicas");
    }

    #[tokio::test(start_paused = true)]
    async fn a_policy_sets_ttl_wait_and_name() {
        let leases = client("[locks.payout]\nkey = \"payout:{deal_id}\"\nttl = \"60s\"\nwait = \"2s\"").await;
        let guard = leases.lock_policy("payout").unwrap().key([("deal_id", 42)]).acquire().await.unwrap();
        assert_eq!(guard.name().as_str(), "payout:42");
        assert!(guard.remaining() > Duration::from_secs(59) && guard.remaining() <= Duration::from_secs(60));
        let error =
            leases.lock_policy("payout").unwrap().key([("deal_id", "42")]).acquire().await.unwrap_err();
        let Error::TimedOut { waited, .. } = error else { panic!("{error}") };
        assert_eq!(waited, Duration::from_secs(2));
        let other = leases.lock_policy("payout").unwrap().key([("deal_id", 43)]).try_acquire().await.unwrap();
        assert!(matches!(other, Attempt::Held(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn keep_alive_max_lifetime_and_minimum_hold_time_come_from_the_policy() {
        let leases = client(
            "[locks.kept]\nkey = \"kept\"\nttl = \"1s\"\nkeep-alive = true\n\
             [locks.fixed]\nkey = \"fixed\"\nttl = \"1s\"\nkeep-alive = false\n\
             [locks.mortal]\nkey = \"mortal\"\nttl = \"1s\"\nkeep-alive = true\nmax-lifetime = \"3s\"\n\
             [locks.rare]\nkey = \"rare\"\nttl = \"1s\"\nhold-at-least = \"10s\"\nwait = \"0s\"",
        )
        .await;
        let take = |name: &str| leases.lock_policy(name).unwrap().lock().acquire();
        let (kept, mortal) = (take("kept").await.unwrap(), take("mortal").await.unwrap());
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(mortal.is_held());
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(kept.is_held() && !mortal.is_held());
        let sleep = async |_| tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(leases.lock_policy("fixed").unwrap().lock().run(sleep).await.is_err());
        let _ = take("rare").await.unwrap().release().await.unwrap();
        assert!(matches!(take("rare").await.unwrap_err(), Error::TimedOut { .. }));
    }

    #[tokio::test(start_paused = true)]
    async fn how_often_the_store_is_asked_comes_from_the_policy() {
        let leases = client(
            "[locks.a]\nkey = \"a\"\nttl = \"60s\"\nwait = \"30s\"\nretry = \"100ms..1s\"\nmax-attempts = 3",
        )
        .await;
        let take = || leases.lock_policy("a").unwrap().lock().acquire();
        let _guard = take().await.unwrap();
        let Error::TimedOut { attempts, waited, .. } = take().await.unwrap_err() else {
            panic!("not timed out")
        };
        assert_eq!(attempts, 3);
        assert!(waited < Duration::from_secs(1), "{waited:?}");
    }

    #[tokio::test]
    async fn locks_and_requests_are_counted_under_their_policy() {
        let leases = client(
            "[locks.payout]\nkey = \"payout:{deal}\"\n[idempotency.payout]\nkey = \"once:{deal}\"\nttl = \"1h\"",
        )
        .await;
        let lock = || leases.lock_policy("payout").unwrap().key([("deal", 42)]);
        let guard = lock().acquire().await.unwrap();
        assert!(lock().try_acquire().await.unwrap().held().is_none());
        assert!(guard.release().await.unwrap().was_held());
        assert!(leases.lock("other").acquire().await.unwrap().release().await.unwrap().was_held());
        let request = leases.idempotency_policy("payout").unwrap().key([("deal", 42)]);
        let paid = request.run(async |_lease| Ok::<u32, String>(7)).await.unwrap();
        assert_eq!(paid.result(), Some(7));
        let stats = leases.stats();
        let (payout, rest) = (&stats.by_policy["payout"], &stats.by_policy[""]);
        assert_eq!(
            (payout.attempts, payout.acquired, payout.refused, payout.released),
            (2, 1, 1, 1),
            "{stats:?}"
        );
        assert_eq!((payout.executed, payout.hold_time.count()), (1, 1), "{stats:?}");
        assert_eq!((rest.acquired, rest.released, rest.executed), (1, 1, 0), "{stats:?}");
        assert_eq!((stats.acquired, stats.released, stats.executed), (2, 2, 1), "{stats:?}");
        let line = "\nleasehold_acquired_total{policy=\"payout\",mode=\"exclusive\"} 1\n";
        assert!(stats.prometheus().contains(line));
    }

    #[tokio::test]
    async fn wrong_names_fail_at_once_and_wrong_values_when_acquired() {
        let leases = client("[locks.payout]\nkey = \"payout:{deal_id}\"").await;
        assert!(leases.lock_policy("payuot").unwrap_err().to_string().contains("\"payout\""));
        let payout = leases.lock_policy("payout").unwrap();
        for (lock, why) in [(payout.key([("deal", "1")]), "\"deal_id\""), (payout.lock(), "none for deal_id")]
        {
            let error = lock.acquire().await.unwrap_err();
            assert!(error.kind().as_str() == "invalid" && error.to_string().contains(why), "{error}");
        }
    }

    #[tokio::test]
    async fn a_ttl_over_the_clients_limit_fails_when_it_connects() {
        let text = "[locks.long]\nkey = \"a\"\nttl = \"60s\"";
        let policies = Policies::parse(text, "p.toml").unwrap();
        let builder = Leasehold::builder("memory:").policies(policies.clone());
        let limit = Duration::from_secs(40);
        let error = builder.configure(|config| config.max_ttl = limit).connect().await.unwrap_err();
        assert!(error.to_string().starts_with("invalid ttl in [locks.long] of p.toml \"60s\""), "{error}");
        assert!(Leasehold::builder("memory:").policies(policies).connect().await.is_ok());
    }

    #[tokio::test]
    async fn a_raised_max_ttl_goes_with_the_policies() {
        let leases = client("max-ttl = \"1h\"\n[locks.long]\nkey = \"a\"\nttl = \"1h\"").await;
        assert!(leases.lock_policy("long").unwrap().lock().acquire().await.is_ok());
        assert_eq!(leases.policies().locks().count(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_delay_comes_from_the_policy() {
        let leases = client("[locks.a]\nkey = \"a\"\nttl = \"1s\"\nlock-delay = \"10s\"").await;
        let take = || leases.lock_policy("a").unwrap().lock().try_acquire();
        let lost = take().await.unwrap().held().unwrap();
        lost.lost().await;
        drop(lost);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(matches!(take().await.unwrap(), Attempt::Busy { .. }));
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert!(matches!(take().await.unwrap(), Attempt::Held(_)));
    }

    /// A store that is out of reach.
    struct Unreachable(Memory);

    fn unreachable<'a, T>() -> Fut<'a, T> {
        Box::pin(async { Err(EngineError::new(Fault::Unreachable, "unplugged")) })
    }

    impl Engine for Unreachable {
        fn capabilities(&self) -> &Capabilities {
            self.0.capabilities()
        }
        fn leases(&self) -> &dyn Leases {
            self
        }
        fn inspector(&self) -> &dyn Inspect {
            self.0.inspector()
        }
        fn set_wake_sink(&self, _: Weak<dyn WakeSink>) {}
        fn connect(&self, _: Until) -> Fut<'_, ()> {
            unreachable()
        }
        fn health(&self, _: Until) -> Fut<'_, Health> {
            unreachable()
        }
        fn close(&self, _: Until) -> Fut<'_, ()> {
            unreachable()
        }
    }

    impl Leases for Unreachable {
        fn claim<'a>(&'a self, _: &'a Claim, _: Until) -> Fut<'a, Answer> {
            unreachable()
        }
        fn renew<'a>(&'a self, _: &'a [Hold], _: Until) -> Fut<'a, Vec<Result<Renewed, EngineError>>> {
            unreachable()
        }
        fn release<'a>(&'a self, _: &'a Hold, _: Until) -> Fut<'a, Released> {
            unreachable()
        }
        fn abandon<'a>(&'a self, _: &'a Claim, _: Until) -> Fut<'a, ()> {
            unreachable()
        }
        fn force_release<'a>(&'a self, _: &'a Name, _: Fence, _: Until) -> Fut<'a, Released> {
            unreachable()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_is_met_as_the_policy_says() {
        let clock = Clock::tokio();
        let engine = Arc::new(Unreachable(Memory::open("", clock.clone())));
        for (file, name, parameters, proceeds) in [
            ("invoices", "process-invoice", &[("invoice_id", "1")][..], true),
            ("escrow", "payout", &[("deal_id", "1")], false),
        ] {
            let builder = Leasehold::builder("unplugged:").clock(clock.clone()).engine(engine.clone());
            let leases = builder.policies(load(file)).connect_lazy().unwrap();
            let lock = leases.lock_policy(name).unwrap().key(parameters.iter().copied());
            let outcome = lock.acquire_or_proceed().await;
            assert_eq!(matches!(outcome, Ok(Protection::Unprotected { .. })), proceeds, "{outcome:?}");
            assert_eq!(matches!(outcome, Err(Error::StoreUnreachable { .. })), !proceeds, "{outcome:?}");
            assert_eq!(leases.stats().degraded, u64::from(proceeds));
        }
    }
}

#[tokio::test]
#[cfg(feature = "memory")]
async fn a_critical_lock_does_not_go_on_without_protection_whatever_the_caller_says() {
    let text = "[locks.payout]\nkey = \"payout:{deal_id}\"\nttl = \"60s\"\ncritical = true\n";
    let policies = leasehold::Policies::parse(text, "test").unwrap();
    let leases = leasehold::Leasehold::builder("memory:").policies(policies).connect().await.unwrap();
    let lock =
        leases.lock_policy("payout").unwrap().key([("deal_id", 42)]).on_outage(leasehold::OnOutage::Proceed);
    let error = lock.acquire_or_proceed().await.unwrap_err();
    assert!(error.to_string().contains("critical"), "{error}");
}

#[test]
fn a_marker_and_an_idempotency_key_cannot_share_a_key() {
    let read = |idempotency: &str, marker: &str| {
        let text = format!(
            "[idempotency.pay]\nkey = \"{idempotency}\"\nttl = \"1h\"\n\n[markers.busy]\nkey = \"{marker}\"\nttl = \"5m\""
        );
        Policies::parse(&text, "x.toml")
    };
    for (idempotency, marker) in [
        ("pay:{id}", "pay:{id}"),
        ("pay:{id}", "pay:{account}"),
        ("pay:{id}", "{kind}:7"),
        ("pay:a-{id}", "pay:{id}-z"),
        ("pay", "pay"),
        ("{{pay}}:{id}", "{{{x}}}:{id}"),
    ] {
        let error = read(idempotency, marker).expect_err(marker).to_string();
        assert!(error.contains("[markers.busy]") && error.contains("[idempotency.pay]"), "{error}");
    }
    for (idempotency, marker) in [
        ("pay:{id}", "busy:{id}"),
        ("pay:{id}", "pay:{id}:{part}"),
        ("pay:{id}", "pay"),
        ("pay:a-{id}", "pay:b-{id}"),
        ("pay:{id}-a", "pay:{id}-b"),
        ("pay:{id}-a", "pay:-a"),
        ("{{pay}}:{id}", "pay:{id}"),
    ] {
        read(idempotency, marker).unwrap();
    }
}
