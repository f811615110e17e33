//! Policies of locks that are shared: readers, writers and permits.
#![cfg(feature = "config")]

use leasehold::Policies;

#[test]
fn a_kind_without_its_numbers_or_with_those_of_another_is_refused() {
    let lock = |lines: &str| format!("[locks.payout]\nkey = \"payout:{{deal_id}}\"\n{lines}");
    for (text, why) in [
        (
            lock("kind = \"exclusiv\""),
            "invalid kind in [locks.payout] of p.toml \"exclusiv\": expected one of \"exclusive\", \"read\", \"write\", \"permits\"",
        ),
        (lock("kind = 4"), "invalid kind in [locks.payout] of p.toml"),
        (
            lock("kind = \"permits\""),
            "invalid [locks.payout] of p.toml \"without of\": expected the number of permits, such as of = 4, because kind is \"permits\"",
        ),
        (
            lock("kind = \"permits\"\nof = 3\npermits = 4"),
            "invalid permits in [locks.payout] of p.toml \"4\": expected 1 to 3, as of is 3",
        ),
        (lock("kind = \"permits\"\nof = 0"), "invalid of in [locks.payout] of p.toml \"0\""),
        (
            lock("kind = \"permits\"\nof = 3\npermits = -1"),
            "invalid permits in [locks.payout] of p.toml \"-1\"",
        ),
        (
            lock("of = 3"),
            "invalid of in [locks.payout] of p.toml \"3\": expected it only together with kind = \"permits\"",
        ),
        (
            lock("kind = \"read\"\npermits = 1"),
            "invalid permits in [locks.payout] of p.toml \"1\": expected it only",
        ),
        (lock("kinds = \"read\""), "hold-at-least, keep-alive, key, kind, lock-delay, "),
    ] {
        let error = Policies::parse(&text, "p.toml").expect_err(&text);
        assert_eq!(error.kind().as_str(), "invalid");
        assert!(error.to_string().contains(why), "{text}\n{error}");
    }
}

#[cfg(feature = "memory")]
#[tokio::test(start_paused = true)]
async fn a_policy_says_how_its_lock_is_shared() {
    use std::time::Duration;

    use leasehold::{Clock, Leasehold, Mode};

    let text = "[locks.look]\nkey = \"config\"\nkind = \"read\"\nwait = \"0s\"\n\
         [locks.change]\nkey = \"config\"\nkind = \"write\"\nwait = \"0s\"\n\
         [locks.gpu]\nkey = \"gpu:{host}\"\nkind = \"permits\"\nof = 5\npermits = 2\nwait = \"0s\"";
    let builder = Leasehold::builder("memory:").clock(Clock::tokio());
    let leases = builder.policies(Policies::parse(text, "p.toml").unwrap()).connect().await.unwrap();
    let take = |name: &str| leases.lock_policy(name).unwrap().lock().acquire();
    let (one, other) = (take("look").await.unwrap(), take("look").await.unwrap());
    assert_eq!((one.mode(), other.mode()), (Mode::Shared, Mode::Shared));
    assert!(take("change").await.is_err());
    drop((one, other));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(take("change").await.unwrap().mode(), Mode::Exclusive);

    let gpu = || leases.lock_policy("gpu").unwrap().key([("host", "a")]);
    let (two, four) = (gpu().acquire().await.unwrap(), gpu().acquire().await.unwrap());
    assert_eq!(two.mode().to_string(), "2 of 5 permits");
    assert!(gpu().acquire().await.is_err());
    let last = gpu().permits(1).acquire().await.unwrap();
    assert_eq!(leases.inspect("gpu:a").await.unwrap().permits_used(), Some(5));
    drop((two, four, last));
    let stats = leases.stats();
    assert_eq!(stats.by_policy["gpu"].by_mode["permits"].acquired, 3);
    assert!(stats.prometheus().contains("leasehold_acquired_total{policy=\"look\",mode=\"shared\"} 2\n"));
}
