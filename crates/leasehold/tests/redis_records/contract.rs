//! The same on one server, behind sentinels and in a cluster.

use std::{collections::BTreeSet, time::Duration};

use bytes::Bytes;
use leasehold::{
    engine::{
        Fault, Renewed,
        records::{Begin, Begun, Content, MarkOp, Outcome, Settled, State},
    },
    fence::Fence,
};
use leasehold_testkit::eventually_async;

use crate::fixture::{Client, LONG, Servers, attempt, end, name, paid, soon};

#[tokio::test(flavor = "multi_thread")]
async fn one_executes_and_everybody_gets_its_result() {
    for servers in Servers::all() {
        let (a, b) = (servers.client(), servers.client());
        let key = "idempotency:payout:42";
        let (first, second) = (attempt(key, Some("100 EUR")), attempt(key, Some("100 EUR")));
        let grant = a.begun(&first).await;
        // Asked again: the same fence.
        assert_eq!(a.begun(&first).await.fence, grant.fence);
        assert!(matches!(b.begin(&second).await, Begun::Running { expires_in, .. } if expires_in <= LONG));
        assert_eq!(b.begin(&attempt(key, Some("200 EUR"))).await, Begun::Mismatch);
        let renewed = a.leases().renew(&[first.hold(grant.fence)], soon()).await.unwrap();
        assert!(matches!(renewed[..], [Ok(Renewed::Kept { .. })]), "{renewed:?}");
        let renewed = b.leases().renew(&[second.hold(grant.fence)], soon()).await.unwrap();
        assert!(matches!(renewed[..], [Ok(Renewed::Gone)]), "{renewed:?}");

        let done = end(&first, grant.fence, paid());
        for _sent_again in 0..2 {
            assert_eq!(a.records().settle(&done, soon()).await.unwrap(), Settled::Stored);
        }
        let Outcome::Completed(result) = paid() else { unreachable!() };
        assert_eq!(b.begin(&second).await, Begun::Completed(result.clone()));
        assert_eq!(b.begin(&attempt(key, Some("200 EUR"))).await, Begun::Mismatch);
        let renewed = a.leases().renew(&[first.hold(grant.fence)], soon()).await.unwrap();
        assert!(matches!(renewed[..], [Ok(Renewed::Gone)]), "{renewed:?}");
        let read = a.records().read(&first.key, soon()).await.unwrap().unwrap();
        let Content::Stored(stored) = read.content else { panic!("{:?}", read.content) };
        assert!(stored.state == State::Completed(result) && stored.fence == grant.fence);
        assert!(stored.fingerprint == first.fingerprint && read.expires_in.unwrap() <= LONG);
        // It lies under the key itself, for other programs.
        assert!(servers.server(key).cli(&["STRLEN", key]).int() > 100);
        assert!(a.records().remove(&first.key, soon()).await.unwrap());
        assert!(!a.records().remove(&first.key, soon()).await.unwrap());
        assert!(a.records().read(&first.key, soon()).await.unwrap().is_none());
        assert!(b.begun(&second).await.fence > grant.fence);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_outcome_is_what_others_see() {
    for servers in Servers::all() {
        let a = servers.client();
        let why = Bytes::from_static(b"no money");
        for (key, outcome, seen) in [
            ("k:failed", Outcome::Failed(why.clone()), Begun::Failed(why.clone())),
            ("k:quarantined", Outcome::Quarantined(why.clone()), Begun::Quarantined(why.clone())),
            ("k:empty", Outcome::Completed(Bytes::new()), Begun::Completed(Bytes::new())),
        ] {
            let one = attempt(key, None);
            let grant = a.begun(&one).await;
            assert_eq!(
                a.records().settle(&end(&one, grant.fence, outcome), soon()).await.unwrap(),
                Settled::Stored
            );
            assert_eq!(a.begin(&attempt(key, Some("x"))).await, seen);
        }
        let (one, next) = (attempt("k:retry", None), attempt("k:retry", None));
        let grant = a.begun(&one).await;
        let retry = end(&one, grant.fence, Outcome::Retry);
        for _sent_again in 0..2 {
            assert_eq!(a.records().settle(&retry, soon()).await.unwrap(), Settled::Stored);
        }
        assert!(a.begun(&next).await.fence > grant.fence);
        // Long results are whole.
        let long = Bytes::from(vec![b' '; 256 << 10]);
        let one = attempt("k:long", None);
        let grant = a.begun(&one).await;
        a.records().settle(&end(&one, grant.fence, Outcome::Completed(long.clone())), soon()).await.unwrap();
        assert_eq!(a.begin(&attempt("k:long", None)).await, Begun::Completed(long));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_execution_counts_unless_another_has_begun() {
    for servers in Servers::all() {
        let a = servers.client();
        for followed in [false, true] {
            let key = format!("late:{followed}");
            let slow = Begin { lease: Duration::from_millis(30), ..attempt(&key, None) };
            let grant = a.begun(&slow).await;
            eventually_async(LONG, "an expired lease", || async {
                a.records().read(&slow.key, soon()).await.unwrap().is_none()
            })
            .await;
            let later = if followed { Some(a.begun(&attempt(&key, None)).await.fence) } else { None };
            let settled = a.records().settle(&end(&slow, grant.fence, paid()), soon()).await.unwrap();
            match later {
                None => assert_eq!(settled, Settled::Stored),
                Some(later) => assert_eq!(settled, Settled::FencedOff { by: Some(later) }),
            }
            let seen = a.begin(&attempt(&key, None)).await;
            assert!(matches!(
                (followed, &seen),
                (false, Begun::Completed(_)) | (true, Begun::Running { .. })
            ));
        }
        // Another has begun, and left nothing behind but its fence.
        let slow = Begin { lease: Duration::from_millis(30), ..attempt("late:over", None) };
        let grant = a.begun(&slow).await;
        eventually_async(LONG, "an expired lease", || async {
            a.records().read(&slow.key, soon()).await.unwrap().is_none()
        })
        .await;
        let other = attempt("late:over", None);
        let later = a.begun(&other).await.fence;
        a.records().settle(&end(&other, later, Outcome::Retry), soon()).await.unwrap();
        let settled = a.records().settle(&end(&slow, grant.fence, paid()), soon()).await.unwrap();
        assert_eq!(settled, Settled::FencedOff { by: Some(later) });
        // The server may have forgotten it.
        let never = attempt("late:never", None);
        let settled = a.records().settle(&end(&never, Fence::new(5), paid()), soon()).await.unwrap();
        assert_eq!(settled, Settled::Stored);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_is_told_by_a_message_when_it_is_settled_or_removed() {
    for servers in Servers::all() {
        let (a, b) = (servers.client(), servers.client());
        for removed in [false, true] {
            let key = format!("watched:{removed}");
            let first = attempt(&key, None);
            let grant = a.begun(&first).await;
            let watching: Vec<_> = (0..5).map(|_| Begin { wake: true, ..attempt(&key, None) }).collect();
            for each in &watching {
                assert!(matches!(b.begin(each).await, Begun::Running { .. }));
                // Asked again it is told once all the same.
                assert!(matches!(b.begin(each).await, Begun::Running { .. }));
                assert_eq!(b.told(each), 0);
            }
            let indifferent = attempt(&key, None);
            assert!(matches!(b.begin(&indifferent).await, Begun::Running { .. }));
            if removed {
                a.records().remove(&first.key, soon()).await.unwrap();
            } else {
                a.records().settle(&end(&first, grant.fence, paid()), soon()).await.unwrap();
            }
            // Nobody asks in between: only a message can bring it.
            eventually_async(LONG, "wake-ups", || async { watching.iter().all(|each| b.told(each) == 1) })
                .await;
            assert_eq!(b.told(&indifferent), 0);
            let side = format!("leasehold:watchers:{{{key}}}");
            assert_eq!(servers.server(&key).cli(&["EXISTS", &side]).int(), 0);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn marks_are_set_tested_and_cleared_many_at_once() {
    for servers in Servers::all() {
        let a = servers.client();
        let records = a.records();
        let keys: Vec<_> = (0..1500).map(|n| name(&format!("mark:{n}"))).collect();
        assert!(records.on_marks(&keys, MarkOp::Test, soon()).await.unwrap().iter().all(|there| !there));
        assert!(
            records
                .on_marks(&keys[..1000], MarkOp::SetIfAbsent(LONG), soon())
                .await
                .unwrap()
                .iter()
                .all(|set| *set)
        );
        let there = records.on_marks(&keys, MarkOp::Test, soon()).await.unwrap();
        assert!(there.iter().enumerate().all(|(n, there)| *there == (n < 1000)));
        let set = records.on_marks(&keys, MarkOp::SetIfAbsent(LONG), soon()).await.unwrap();
        assert!(set.iter().enumerate().all(|(n, set)| *set == (n >= 1000)));
        // Replaced, it lasts anew.
        assert!(
            records.on_marks(&keys, MarkOp::Set(LONG * 60), soon()).await.unwrap().iter().all(|set| *set)
        );
        let mark = records.read(&keys[0], soon()).await.unwrap().unwrap();
        assert!(mark.content == Content::Mark && mark.expires_in.unwrap() > LONG * 2);
        assert_eq!(servers.server("mark:0").cli(&["GET", "mark:0"]).text(), "1");
        assert_eq!(a.begin(&attempt("mark:0", None)).await, Begun::DoneElsewhere);
        assert!(
            records
                .on_marks(&keys[..10], MarkOp::Clear, soon())
                .await
                .unwrap()
                .iter()
                .all(|cleared| *cleared)
        );
        let cleared = records.on_marks(&keys, MarkOp::Clear, soon()).await.unwrap();
        assert!(cleared.iter().enumerate().all(|(n, cleared)| *cleared == (n >= 10)));
        assert!(records.on_marks(&[], MarkOp::Set(LONG), soon()).await.unwrap().is_empty());

        // A record is neither replaced nor cleared.
        let one = attempt("mark:record", None);
        a.begun(&one).await;
        let key = [one.key.clone()];
        assert_eq!(records.on_marks(&key, MarkOp::Set(LONG), soon()).await.unwrap(), [false]);
        assert_eq!(records.on_marks(&key, MarkOp::Clear, soon()).await.unwrap(), [false]);
        assert_eq!(records.on_marks(&key, MarkOp::Test, soon()).await.unwrap(), [true]);
        assert!(matches!(a.begin(&attempt("mark:record", None)).await, Begun::Running { .. }));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_wrote_is_an_error_and_left_alone() {
    for servers in Servers::all() {
        let a = servers.client();
        let key = "foreign:bytes";
        let begun = attempt(key, None);
        let fence = a.begun(&begun).await.fence;
        // The same bytes on every run.
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        for n in 0..100 {
            let bytes: Vec<u8> = (0..n % 40).map(|_| random(&mut seed)).collect();
            // Some begin like records, and are damaged.
            let start: &[u8] = [&b""[..], b"leasehold:1 running 7 - ", b"leasehold:1 completed"][n % 3];
            let bytes = [start, &bytes].concat();
            let script = format!(
                "return redis.call('SET', KEYS[1], '{}')",
                bytes.iter().map(|byte| format!("\\{byte:03}")).collect::<String>()
            );
            assert_eq!(servers.server(key).cli(&["EVAL", &script, "1", key]).error(), None);
            if bytes == b"1" {
                continue;
            }
            let error = a.try_begin(&attempt(key, None)).await.unwrap_err();
            assert_eq!(error.fault, Fault::Corrupt, "{bytes:?}: {error}");
            let error = a.records().settle(&end(&begun, fence, paid()), soon()).await.unwrap_err();
            assert_eq!(error.fault, Fault::Corrupt, "{bytes:?}: {error}");
            let read = a.records().read(&begun.key, soon()).await.unwrap().unwrap();
            assert_eq!((read.content, read.expires_in), (Content::Corrupt, None));
            assert_eq!(servers.server(key).cli(&["STRLEN", key]).int(), bytes.len() as i64);
        }
        assert!(a.records().remove(&begun.key, soon()).await.unwrap());
    }
}

/// A byte that is no letter of a record by chance.
fn random(seed: &mut u64) -> u8 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 56) as u8
}

#[tokio::test(flavor = "multi_thread")]
async fn another_type_of_key_is_named_and_left_alone() {
    for servers in Servers::all() {
        let a = servers.client();
        let (key, records) = (name("foreign:hash"), a.records());
        servers.server("foreign:hash").cli(&["HSET", "foreign:hash", "a", "b"]);
        let one = attempt("foreign:hash", None);
        let keys = [name("plain"), key.clone()];
        let errors = [
            records.begin(&one, soon()).await.unwrap_err(),
            records.settle(&end(&one, Fence::new(1), paid()), soon()).await.unwrap_err(),
            records.read(&key, soon()).await.unwrap_err(),
            records.on_marks(&keys, MarkOp::Set(LONG), soon()).await.unwrap_err(),
            records.on_marks(&keys, MarkOp::Clear, soon()).await.unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.fault, Fault::WrongType, "{error}");
            assert!(error.why.contains("foreign:hash"), "{error}");
        }
        assert_eq!(records.on_marks(&keys, MarkOp::Test, soon()).await.unwrap(), [false, true]);
        assert_eq!(servers.server("foreign:hash").cli(&["HGET", "foreign:hash", "a"]).text(), "b");
        // Keys of the library itself are no records.
        let error = a.try_begin(&attempt("leasehold:fence:{x}", None)).await.unwrap_err();
        assert_eq!(error.fault, Fault::Unsupported, "{error}");
    }
}

/// The key may be a lock, or somebody's data.
#[tokio::test(flavor = "multi_thread")]
async fn a_mark_neither_replaces_nor_clears_what_is_no_mark() {
    for servers in Servers::all() {
        let a = servers.client();
        let (key, records) = ([name("lock:stock")], a.records());
        let server = servers.server("lock:stock");
        for text in ["0123456789abcdef0123456789abcdef 1 7 host", "11", "important", ""] {
            server.cli(&["SET", "lock:stock", text]);
            for op in [MarkOp::Set(LONG), MarkOp::SetIfAbsent(LONG)] {
                assert_eq!(records.on_marks(&key, op, soon()).await.unwrap(), [false], "{text}");
            }
            assert_eq!(records.on_marks(&key, MarkOp::Clear, soon()).await.unwrap(), [false], "{text}");
            assert_eq!(records.on_marks(&key, MarkOp::Test, soon()).await.unwrap(), [true]);
            assert_eq!(server.cli(&["GET", "lock:stock"]).text(), text);
        }
        // Another program's mark is one.
        server.cli(&["SET", "lock:stock", "1", "EX", "60"]);
        assert_eq!(records.on_marks(&key, MarkOp::Set(LONG), soon()).await.unwrap(), [true]);
        assert_eq!(records.on_marks(&key, MarkOp::Clear, soon()).await.unwrap(), [true]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_finds_records_and_marks_by_their_prefix() {
    for servers in Servers::all() {
        let a = servers.client();
        let mut expected = BTreeSet::new();
        for n in 0..30 {
            let one = attempt(&format!("scan:record:{n}"), None);
            a.begun(&one).await;
            expected.insert(one.key);
        }
        let marks: Vec<_> = (0..300).map(|n| name(&format!("scan:mark:{n}"))).collect();
        a.records().on_marks(&marks, MarkOp::Set(LONG), soon()).await.unwrap();
        expected.extend(marks);
        servers.server("scan:odd").cli(&["LPUSH", "scan:odd", "x"]);
        expected.insert(name("scan:odd"));
        servers.server("lock:scan").cli(&["SET", "lock:scan", "x"]);
        a.begun(&attempt("elsewhere", None)).await;
        let (found, odd) = scan(&a, "scan:", 50).await;
        assert_eq!((found, odd), (expected.clone(), BTreeSet::from([name("scan:odd")])));
        // Neither locks nor side keys.
        expected.insert(name("elsewhere"));
        assert_eq!(scan(&a, "", 1000).await.0, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_misses_nothing_although_keys_come_and_go_between_its_pages() {
    for servers in Servers::all() {
        let a = servers.client();
        for limit in [1, 7, 50] {
            let marks: Vec<_> = (0..200).map(|n| name(&format!("pages:{limit}:{n}"))).collect();
            a.records().on_marks(&marks, MarkOp::Set(LONG), soon()).await.unwrap();
            let (mut seen, mut from, mut others) = (BTreeSet::new(), None, 0);
            loop {
                let prefix = format!("pages:{limit}:");
                let page = a.records().scan(&prefix, from, limit, soon()).await.unwrap();
                let keys: Vec<_> = page.items.into_iter().map(|record| record.key).collect();
                // What was seen goes, and others come.
                assert!(
                    a.records()
                        .on_marks(&keys, MarkOp::Clear, soon())
                        .await
                        .unwrap()
                        .into_iter()
                        .all(|cleared| cleared)
                );
                let more: Vec<_> = (0..5).map(|n| name(&format!("others:{limit}:{}", others + n))).collect();
                a.records().on_marks(&more, MarkOp::Set(LONG), soon()).await.unwrap();
                others += 5;
                seen.extend(keys);
                match page.next {
                    Some(next) => from = Some(next),
                    None => break,
                }
            }
            let missed: Vec<_> = marks.iter().filter(|mark| !seen.contains(*mark)).collect();
            assert!(missed.is_empty(), "pages of {limit}: {missed:?}");
        }
    }
}

/// All pages, and what cannot be read.
async fn scan(
    client: &Client,
    prefix: &str,
    limit: u32,
) -> (BTreeSet<leasehold::name::Name>, BTreeSet<leasehold::name::Name>) {
    let (mut found, mut odd, mut from) = (BTreeSet::new(), BTreeSet::new(), None);
    loop {
        let page = client.records().scan(prefix, from, limit, soon()).await.unwrap();
        for record in page.items {
            if record.content == Content::Corrupt {
                odd.insert(record.key.clone());
            }
            assert!(found.insert(record.key.clone()), "{} came twice", record.key);
        }
        match page.next {
            Some(next) => from = Some(next),
            None => return (found, odd),
        }
    }
}
