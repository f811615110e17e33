//! Votes, and what follows a yes.

use super::*;

#[tokio::test]
async fn a_vote_repeated_is_the_same_vote_and_refreshes_the_ttl() {
    let Some((server, voter, _)) = admitted().await else { return };
    let first = yes(vote(&voter, claim(1)).await);
    server.cli(&["PEXPIRE", "lock:x", "5000"]);
    assert_eq!(yes(vote(&voter, claim(1)).await), first);
    assert!(server.cli(&["PTTL", "lock:x"]).int() > 5_000);
    assert_eq!(voter.attempts.count(), 0, "answered votes are forgotten");
}

#[tokio::test]
async fn a_node_votes_for_one_at_a_time_and_says_who_has_it() {
    let Some((server, voter, _)) = admitted().await else { return };
    let fence = yes(vote(&voter, claim(1)).await);
    let Vote::No { fence: seen, holder, expires_in, .. } = vote(&voter, claim(2)).await else {
        panic!("two owners")
    };
    assert_eq!((seen, holder), (fence, Some(Holder::this_process("tests", 1))));
    assert!(expires_in.unwrap() <= Duration::from_secs(30));
    assert!(holds(&server, &claim(1)));
    assert_eq!(server.cli(&["EXISTS", "leasehold:waiters:{lock:x}"]).int(), 0, "it asked once");
}

#[tokio::test]
async fn nodes_that_can_give_the_hint_give_the_same_fence() {
    let servers: Vec<_> = (0..3).filter_map(|_| redis_or_skip()).collect();
    let [a, b, c] = servers.as_slice() else { return };
    let url = format!("redlock://{},{},{}", a.addr(), b.addr(), c.addr());
    let voters = voters(&url, &options()).unwrap();
    assert_eq!(voters[1].label(), b.addr().to_string());

    let asked = ballot(claim(1));
    for (voter, index) in voters.iter().zip(0..) {
        let identity = voter.status(soon()).await.unwrap().identity;
        let (state, set) = (State::Votes, "5e7".into());
        let record = Record { state, set, epoch: 1, n: 3, index, identity, max_ms: MAX_MS };
        assert!(voter.write_record(None, &record, Fence::new(0), soon()).await.unwrap());
        voter.vote_under(Some(record));
        assert_eq!(voter.vote(&asked, soon()).await.unwrap(), Vote::Yes(asked.hint));
        assert_eq!(voter.status(soon()).await.unwrap().highest, asked.hint);
    }
}

#[tokio::test]
async fn a_fence_is_above_the_last_one_and_above_the_floor() {
    let Some((server, voter, record)) = admitted().await else { return };
    let now = Clock::system().wall_us();
    let (last, floor) = (now + 20_000_000, now + 40_000_000);
    server.cli(&["SET", "leasehold:fence:{lock:x}", &last.to_string()]);
    assert_eq!(yes(vote(&voter, claim(1)).await).get(), last + 1);

    server.cli(&["DEL", "lock:x"]);
    assert!(voter.write_record(Some(&record), &record, Fence::new(floor), soon()).await.unwrap());
    assert_eq!(yes(vote(&voter, claim(2)).await).get(), floor + 1, "a fence below the floor");
    server.cli(&["DEL", "lock:x", "leasehold:fence:{lock:x}"]);
    assert_eq!(yes(vote(&voter, claim(3)).await).get(), floor + 1, "a name that the node does not know");
    assert_eq!(voter.status(soon()).await.unwrap().highest.get(), floor + 1);

    // A lower floor lowers nothing.
    assert!(voter.write_record(Some(&record), &record, Fence::new(7), soon()).await.unwrap());
    assert_eq!(server.cli(&["GET", "leasehold:quorum:floor"]).int() as u64, floor);
}

#[tokio::test]
async fn a_fence_is_kept_for_a_day_and_its_lead() {
    let Some((server, voter, _)) = admitted().await else { return };
    let pttl = || server.cli(&["PTTL", "leasehold:fence:{lock:x}"]).int();
    let lead_us = 3_600_000_000;
    let last = Clock::system().wall_us() + lead_us;
    server.cli(&["SET", "leasehold:fence:{lock:x}", &last.to_string()]);
    yes(vote(&voter, claim(1)).await);
    assert!(pttl() > 86_400_000 + 3_500_000, "{}", pttl());

    server.cli(&["PEXPIRE", "leasehold:fence:{lock:x}", "1000"]);
    let holds = [claim(1).hold(Fence::new(1))];
    voter.renew(&holds, soon()).await.unwrap();
    assert!(pttl() > 86_000_000, "renewals keep it: {}", pttl());
}

#[tokio::test]
async fn no_fence_reaches_two_to_the_53() {
    let Some((server, voter, _)) = admitted().await else { return };
    server.cli(&["SET", "leasehold:fence:{lock:x}", "9007199254740990"]);
    assert_eq!(yes(vote(&voter, claim(1)).await).get(), 9_007_199_254_740_991);
    server.cli(&["DEL", "lock:x"]);
    let error = voter.vote(&ballot(claim(2)), soon()).await.unwrap_err();
    assert!(error.why.starts_with("FENCE"), "{error}");
    assert!(server.cli(&["GET", "lock:x"]).is_nil());
}

#[tokio::test]
async fn a_hint_far_from_the_nodes_time_is_refused() {
    let Some((server, voter, _)) = admitted().await else { return };
    let now = Clock::system().wall_us();
    for hint in [now - 90_000_000, now + 90_000_000] {
        let ballot = Ballot { hint: Fence::new(hint), ..(*ballot(claim(1))).clone() };
        let error = voter.vote(&Arc::new(ballot), soon()).await.unwrap_err();
        assert!(error.why.starts_with("HINT"), "{error}");
        assert_eq!((fence_of(&server), server.cli(&["EXISTS", "lock:x"]).int()), (0, 0));
    }
}

#[tokio::test]
async fn a_lease_longer_than_the_record_allows_is_refused_by_name_of_the_limit() {
    let Some((server, voter, _)) = admitted().await else { return };
    let longest = |ttl, delay| Claim {
        ttl: Duration::from_millis(ttl),
        lock_delay: Duration::from_millis(delay),
        ..claim(1)
    };
    let error = voter.vote(&ballot(longest(MAX_MS, 1)), soon()).await.unwrap_err();
    assert!(error.why.contains("60001 ms") && error.why.contains("60000 ms"), "{error}");
    assert_eq!(server.cli(&["EXISTS", "lock:x"]).int(), 0);
    let error = voter.repair(&hold(&longest(MAX_MS, 1), 5), soon()).await.unwrap_err();
    assert!(error.why.contains("60000 ms"), "{error}");

    let exact = longest(MAX_MS - 1, 1);
    yes(vote(&voter, exact.clone()).await);
    let holds = [longest(MAX_MS, 1).hold(Fence::new(1))];
    assert!(voter.renew(&holds, soon()).await.unwrap_err().why.contains("quorum allows"));
    let both = [holds[0].clone(), exact.hold(Fence::new(1))];
    assert_eq!(voter.renew(&both, soon()).await.unwrap(), [Kept::Missing, Kept::Yes]);
    assert!(server.cli(&["PTTL", "lock:x"]).int() <= MAX_MS as i64);
}

#[tokio::test]
async fn a_confirmation_counts_only_while_the_owner_holds() {
    let Some((server, voter, _)) = admitted().await else { return };
    let fence = yes(vote(&voter, claim(1)).await).get();
    assert!(!voter.confirm(&hold(&claim(2), fence + 10), soon()).await.unwrap());
    assert_eq!(fence_of(&server), fence, "another's confirmation raises nothing");
    assert!(voter.confirm(&hold(&claim(1), fence + 5), soon()).await.unwrap());
    assert_eq!(fence_of(&server), fence + 5);
    assert!(!voter.confirm(&hold(&claim(1), fence + 3), soon()).await.unwrap());
    assert_eq!(fence_of(&server), fence + 5, "a fence never falls");
    assert_eq!(voter.status(soon()).await.unwrap().highest.get(), fence + 5);
    server.cli(&["DEL", "lock:x"]);
    assert!(!voter.confirm(&hold(&claim(1), fence + 9), soon()).await.unwrap());
    assert_eq!(fence_of(&server), fence + 5);
}

#[tokio::test]
async fn a_renewal_tells_kept_from_missing_from_taken() {
    let Some((server, voter, _)) = admitted().await else { return };
    let of = |name: &str| Claim { name: Name::new(name).unwrap(), ..claim(1) };
    yes(vote(&voter, of("mine")).await);
    yes(vote(&voter, Claim { owner: claim(2).owner, ..of("taken") }).await);
    server.cli(&["HSET", "lock:odd", "a", "b"]);
    server.cli(&["PEXPIRE", "lock:mine", "5000"]);
    let holds = ["mine", "missing", "taken", "odd"].map(|name| of(name).hold(Fence::new(1)));
    let kept = voter.renew(&holds, soon()).await.unwrap();
    assert_eq!(kept, [Kept::Yes, Kept::Missing, Kept::Taken, Kept::Taken]);
    assert!(server.cli(&["PTTL", "lock:mine"]).int() > 5_000);
    assert_eq!(server.cli(&["EXISTS", "lock:missing"]).int(), 0, "a renewal brings nothing back");

    let many = vec![of("mine").hold(Fence::new(1)); 300];
    assert_eq!(voter.renew(&many, soon()).await.unwrap(), [Kept::Yes; 300]);
    assert!(voter.renew(&[], soon()).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_repair_puts_a_lost_hold_back_and_nothing_else() {
    let Some((server, voter, _)) = admitted().await else { return };
    let mine = claim(1);
    let repair = async |fence| voter.repair(&hold(&mine, fence), soon()).await;
    assert!(repair(50).await.unwrap() && holds(&server, &mine));
    assert_eq!(fence_of(&server), 50);
    assert!(repair(50).await.unwrap(), "it is ours already");

    server.cli(&["DEL", "lock:x"]);
    server.cli(&["SET", "leasehold:fence:{lock:x}", "51"]);
    assert!(!repair(50).await.unwrap(), "somebody had it since");
    server.cli(&["SET", "leasehold:fence:{lock:x}", "50"]);
    server.cli(&["SET", "lock:x", "another"]);
    assert!(!repair(50).await.unwrap(), "another one holds it");
    server.cli(&["DEL", "lock:x"]);
    server.cli(&["SET", &format!("leasehold:gone:{{lock:x}}:{}", mine.owner.id_text()), "1"]);
    assert!(!repair(50).await.unwrap(), "its attempt has ended");
    assert_eq!(server.cli(&["EXISTS", "lock:x"]).int(), 0);
}

#[tokio::test]
async fn a_name_that_is_another_kind_of_key_is_an_error() {
    let Some((server, voter, _)) = admitted().await else { return };
    server.cli(&["HSET", "lock:x", "a", "b"]);
    let error = voter.vote(&ballot(claim(1)), soon()).await.unwrap_err();
    assert_eq!(error.fault, Fault::WrongType);
    assert!(!voter.confirm(&hold(&claim(1), 5), soon()).await.unwrap());
    assert!(!voter.repair(&hold(&claim(1), 5), soon()).await.unwrap());
    let names = [claim(1).name];
    let seen = voter.inspect(&names, soon()).await.unwrap();
    assert_eq!(Holder::parse(&seen[0].owner.as_ref().unwrap().0), Holder::Foreign);
    let outcome = voter.withdraw(&claim(1).name, &claim(1).owner, soon()).await.unwrap();
    assert_eq!(outcome, Withdrawn { was_ours: false, woke: 0, by: Some(Fence::new(0)), by_readers: false });
}

#[tokio::test]
async fn looking_and_scanning_show_holders_and_waiters() {
    let Some((_server, voter, _)) = admitted().await else { return };
    let fence = yes(vote(&voter, claim(1)).await);
    assert!(matches!(vote(&voter, waiting(2)).await, Vote::No { .. }));
    let names = ["x", "free"].map(|name| Name::new(name).unwrap());
    let seen = voter.inspect(&names, soon()).await.unwrap();
    assert_eq!(seen[0].owner.as_ref().unwrap().0, claim(1).owner.expose());
    assert_eq!(seen[0].fence, fence);
    assert!(seen[0].expires_in.is_some());
    let who: Vec<_> = seen[0].waiters.iter().map(|waiter| waiter.holder.clone()).collect();
    assert_eq!(who, [Holder::this_process("tests", 1)]);
    assert_eq!(seen[1], Sighting::default());
    let page = voter.scan("", None, 10, soon()).await.unwrap();
    assert_eq!((page.items, page.next), (vec![names[0].clone()], None));
    assert!(voter.scan("y", None, 10, soon()).await.unwrap().items.is_empty());
    assert!(!voter.health(soon()).await.unwrap().0.facts.is_empty());
    let shown = format!("{seen:?}");
    assert!(!shown.contains(claim(1).owner.id_text()), "{shown}");
}

#[tokio::test]
async fn a_script_that_the_node_lost_is_sent_again_unnoticed() {
    let Some((server, voter, _)) = admitted().await else { return };
    yes(vote(&voter, claim(1)).await);
    server.cli(&["SCRIPT", "FLUSH"]);
    yes(vote(&voter, claim(1)).await);
    server.cli(&["SCRIPT", "FLUSH"]);
    assert!(voter.withdraw(&claim(1).name, &claim(1).owner, soon()).await.unwrap().was_ours);
    assert_eq!(server.cli(&["KEYS", "leasehold:gone:*"]).list().len(), 0);
}
