//! Readers beside each other, and writers.

use leasehold_core::engine::voter::Reader;
use leasehold_testkit::eventually_async;

use super::*;

fn reader(random: u128) -> Claim {
    Claim { mode: Mode::Shared, ..claim(random) }
}

fn waiting_reader(random: u128) -> Claim {
    Claim { mode: Mode::Shared, ..waiting(random) }
}

/// How many readers the node says are in the way.
async fn refused(voter: &RedisVoter, claim: Claim) -> u32 {
    match vote(voter, claim).await {
        Vote::No { readers, .. } => readers,
        other => panic!("not a no: {other:?}"),
    }
}

async fn withdraw(voter: &RedisVoter, claim: &Claim) -> Withdrawn {
    voter.withdraw(&claim.name, &claim.owner, soon()).await.unwrap()
}

async fn readers_of(voter: &RedisVoter) -> Vec<Reader> {
    voter.inspect(&[claim(1).name], soon()).await.unwrap().remove(0).readers
}

fn fences_of(server: &RedisServer) -> String {
    server.cli(&["GET", "leasehold:fence:{lock:x}"]).text().to_owned()
}

#[tokio::test]
async fn a_node_votes_for_many_readers_or_one_writer() {
    let Some((server, voter, _)) = admitted().await else { return };
    let first = yes(vote(&voter, reader(1)).await);
    yes(vote(&voter, reader(2)).await);
    assert_eq!(yes(vote(&voter, reader(1)).await), first, "already ours is the same vote");
    assert_eq!(refused(&voter, claim(3)).await, 2, "a writer beside readers");
    let left = withdraw(&voter, &reader(1)).await;
    assert!(left.was_ours && left.by_readers && left.by.is_some());
    assert_eq!(refused(&voter, claim(3)).await, 1);
    assert!(!withdraw(&voter, &reader(1)).await.was_ours, "it is gone");
    let last = withdraw(&voter, &reader(2)).await;
    assert_eq!(last, Withdrawn { was_ours: true, woke: 0, by: None, by_readers: false });
    let leftovers = server.cli(&["KEYS", "*{lock:x}*"]);
    assert!(leftovers.list().iter().all(|key| key.text().starts_with("leasehold:fence:")));

    yes(vote(&voter, claim(3)).await);
    assert_eq!(refused(&voter, reader(4)).await, 0, "a reader beside a writer");
    assert!(withdraw(&voter, &claim(3)).await.was_ours);
}

#[tokio::test]
async fn fences_grow_from_vote_to_vote_whoever_reads_or_writes() {
    let Some((server, voter, _)) = admitted().await else { return };
    let now = Clock::system().wall_us();
    let at = async |claim: Claim, hint: u64| {
        let ballot = Arc::new(Ballot { claim, hint: Fence::new(hint), arrival: now });
        yes(voter.vote(&ballot, soon()).await.unwrap()).get()
    };
    assert_eq!(at(claim(9), now).await, now);
    assert!(withdraw(&voter, &claim(9)).await.was_ours);
    assert_eq!(at(reader(1), now + 500).await, now + 500);
    assert_eq!(at(reader(2), now + 200).await, now + 501);
    assert_eq!(fences_of(&server), format!("{} {now}", now + 501), "with the last writer's");
    for random in 1..=2 {
        assert!(withdraw(&voter, &reader(random)).await.was_ours);
    }
    // Also where the votes of writers are ordinary.
    let asked = |hint| Op::Vote(Arc::new(Ballot { claim: claim(5), hint: Fence::new(hint), arrival: now }));
    let outcome = voter.do_ordinary(&[asked(now + 400)], soon()).await.unwrap();
    assert_eq!(outcome, [Outcome::NotOrdinary]);
    assert_eq!(at(claim(5), now + 400).await, now + 502, "below a reader before it");
    assert_eq!(fences_of(&server), (now + 502).to_string());
}

#[tokio::test]
async fn a_confirmation_raises_a_reader_whatever_other_readers_have() {
    let Some((server, voter, _)) = admitted().await else { return };
    let (fence, other) = (yes(vote(&voter, reader(1)).await).get(), yes(vote(&voter, reader(2)).await).get());
    let confirm = async |claim: &Claim, fence| voter.confirm(&hold(claim, fence), soon()).await.unwrap();
    assert!(confirm(&reader(1), fence).await, "that another reader has a higher one is no matter");
    assert!(confirm(&reader(1), other + 10).await);
    assert_eq!(fences_of(&server), format!("{} 0", other + 10));
    let fences: Vec<_> = readers_of(&voter).await.iter().map(|reader| reader.fence.get()).collect();
    assert!(fences.contains(&(other + 10)) && fences.contains(&other), "{fences:?}");
    assert!(!confirm(&reader(3), other + 20).await, "it is not there");
    assert!(!confirm(&reader(1), other + 9).await, "a late copy of its vote came since");
}

#[tokio::test]
async fn readers_are_renewed_and_repaired_beside_others() {
    let Some((server, voter, _)) = admitted().await else { return };
    let fence = yes(vote(&voter, reader(1)).await).get();
    let named = |name: &str| Claim { name: Name::new(name).unwrap(), ..claim(7) };
    yes(vote(&voter, named("mine")).await);
    let holds = [hold(&reader(1), fence), hold(&named("mine"), 1), hold(&reader(2), fence)];
    assert_eq!(voter.renew(&holds, soon()).await.unwrap(), [Kept::Yes, Kept::Yes, Kept::Missing]);
    let repair = async |claim: &Claim, fence| voter.repair(&hold(claim, fence), soon()).await.unwrap();
    assert!(repair(&reader(2), fence + 5).await && repair(&reader(2), fence + 5).await);
    assert_eq!(readers_of(&voter).await.len(), 2);
    // Readers that came and went since do not keep it out.
    server.cli(&["DEL", "lock:x"]);
    assert!(repair(&reader(1), fence).await);
    assert_eq!(readers_of(&voter).await.len(), 1, "what was there before K was lost does not count");
    server.cli(&["DEL", "lock:x"]);
    server.cli(&["SET", "leasehold:fence:{lock:x}", &(fence + 6).to_string()]);
    assert!(!repair(&reader(1), fence).await, "a writer came since");
    yes(vote(&voter, claim(3)).await);
    assert_eq!(voter.renew(&holds[..1], soon()).await.unwrap(), [Kept::Taken]);
    assert!(!repair(&reader(1), fence + 100).await, "a writer holds it");
    assert!(withdraw(&voter, &claim(3)).await.was_ours);
    server.cli(&["SET", &format!("leasehold:gone:{{lock:x}}:{}", reader(1).owner.id_text()), "1"]);
    assert!(!repair(&reader(1), u64::MAX >> 12).await, "its attempt has ended");
}

#[tokio::test]
async fn each_reader_s_lease_ends_on_its_own() {
    let Some((server, voter, _)) = admitted().await else { return };
    yes(vote(&voter, Claim { ttl: Duration::from_millis(50), ..reader(1) }).await);
    yes(vote(&voter, reader(2)).await);
    eventually_async(PATIENCE, "the short lease to end", || async { readers_of(&voter).await.len() == 1 })
        .await;
    assert!(!withdraw(&voter, &reader(1)).await.was_ours);
    assert_eq!(refused(&voter, claim(3)).await, 1);
    yes(vote(&voter, Claim { ttl: Duration::from_millis(50), ..reader(4) }).await);
    assert!(withdraw(&voter, &reader(2)).await.was_ours);
    // K lasts longer than the leases that are left.
    server.cli(&["PERSIST", "lock:x"]);
    eventually_async(PATIENCE, "the last lease to end", || async {
        matches!(vote(&voter, claim(3)).await, Vote::Yes(_))
    })
    .await;
}

#[tokio::test]
async fn a_writer_that_waits_keeps_later_readers_out_while_it_is_heard_of() {
    let Some((server, voter, _)) = admitted().await else { return };
    let heard = listen_to(&voter);
    let (writer, before, behind) = (waiting(10), waiting_reader(11), waiting_reader(12));
    let at = async |claim: &Claim, arrival_ms: u64| {
        let now = Clock::system().wall_us();
        let arrival = now - 10_000_000 + arrival_ms * 1000;
        let ballot = Ballot { claim: claim.clone(), hint: Fence::new(now), arrival };
        voter.vote(&Arc::new(ballot), soon()).await.unwrap()
    };
    yes(vote(&voter, reader(1)).await);
    assert!(matches!(at(&writer, 1_000).await, Vote::No { readers: 1, ahead: 0, .. }));
    assert_eq!(refused(&voter, reader(2)).await, 1, "the writer would starve");
    assert!(matches!(at(&behind, 2_000).await, Vote::No { ahead: 1, .. }));
    // By the clock of its client it came before the writer.
    assert!(matches!(at(&before, 0).await, Vote::No { ahead: 0, .. }));
    yes(at(&before, 0).await);
    yes(vote(&voter, reader(1)).await);
    // The writer gives up: the reader behind it is let in beside the others.
    assert_eq!(withdraw(&voter, &writer).await.woke, 1);
    eventually_async(PATIENCE, "the reader to be woken", || async { heard.hints() == [behind.owner.id()] })
        .await;
    yes(at(&behind, 2_000).await);
    // One that is silent keeps nobody out.
    let silent = waiting(13);
    assert!(matches!(at(&silent, 3_000).await, Vote::No { .. }));
    let overdue = (Clock::system().wall_us() - 16_000_000).to_string();
    server.cli(&["HSET", "leasehold:seen:{lock:x}", silent.owner.id_text(), &overdue]);
    yes(vote(&voter, reader(2)).await);
}

#[tokio::test]
async fn a_writer_s_end_wakes_the_run_of_readers_and_no_writer_behind_them() {
    let Some((_server, voter, _)) = admitted().await else { return };
    let heard = listen_to(&voter);
    yes(vote(&voter, claim(1)).await);
    for random in 2..=4 {
        assert_eq!(refused(&voter, waiting_reader(random)).await, 0);
    }
    assert_eq!(refused(&voter, waiting(5)).await, 0);
    assert_eq!(refused(&voter, waiting_reader(6)).await, 0);
    assert_eq!(withdraw(&voter, &claim(1)).await.woke, 3);
    let run: Vec<_> = (2..=4).map(|random| reader(random).owner.id()).collect();
    eventually_async(PATIENCE, "the readers to be woken", || async { heard.hints() == run }).await;
    assert_eq!(refused(&voter, claim(7)).await, 0, "a newcomer comes after those who wait");
    for random in 2..=4 {
        yes(vote(&voter, waiting_reader(random)).await);
    }
    assert_eq!(withdraw(&voter, &reader(2)).await.woke, 0, "others still read");
    let retracted = ballot(reader(3));
    voter.retract(&retracted, soon()).await.unwrap();
    assert_eq!(withdraw(&voter, &reader(4)).await.woke, 1, "the writer is next");
}
