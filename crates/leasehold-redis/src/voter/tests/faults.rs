//! Servers that cannot write, and servers without memory.

use super::*;
use leasehold_core::error::Refusal;

#[tokio::test]
async fn a_replica_refuses_instead_of_answering_from_old_data() {
    let Some((server, voter, record)) = admitted().await else { return };
    let (mine, other) = (claim(1), claim(2));
    yes(vote(&voter, mine.clone()).await);
    server.cli(&["SET", &format!("leasehold:gone:{{lock:x}}:{}", claim(3).owner.id_text()), "1"]);
    server.cli(&["REPLICAOF", "127.0.0.1", "1"]);

    let free = Claim { name: Name::new("free").unwrap(), ..claim(5) };
    for asked in [free.clone(), mine.clone(), other.clone(), waiting(2), claim(3)] {
        let error = voter.vote(&ballot(asked), soon()).await.unwrap_err();
        assert_eq!(error.fault, Fault::Unreachable, "{error}");
    }
    let of = |claim: &Claim| hold(claim, 1);
    let read_only = |error: Option<EngineError>| {
        let fault = error.map(|error| error.fault);
        assert_eq!(fault, Some(Fault::Unreachable));
    };
    for claim in [&free, &mine, &other] {
        read_only(voter.confirm(&of(claim), soon()).await.err());
        read_only(voter.repair(&of(claim), soon()).await.err());
        read_only(voter.renew(&[of(claim)], soon()).await.err());
        read_only(voter.withdraw(&claim.name, &claim.owner, soon()).await.err());
    }
    read_only(voter.status(soon()).await.err());
    read_only(voter.write_record(None, &record, Fence::new(0), soon()).await.err());
    voter.vote_under(Some(Record { set: "0".into(), ..record }));
    read_only(voter.vote(&ballot(claim(4)), soon()).await.err());
}

#[tokio::test]
async fn a_node_that_hangs_gets_no_more_calls_than_it_has_room_for() {
    let Some((server, voter, _)) = admitted().await else { return };
    yes(vote(&voter, claim(1)).await);
    server.stop();
    let most = options().max_in_flight as u128;
    let busy: Vec<_> = (0..most).map(|number| tokio::spawn(voting(&voter, claim(2 + number)))).collect();
    leasehold_testkit::eventually_async(PATIENCE, "its room to be taken", || async {
        voter.in_flight.available_permits() == 0
    })
    .await;
    let until = Clock::system().now() + Duration::from_millis(200);
    let error = voter.vote(&ballot(claim(1000)), until).await.unwrap_err();
    assert_eq!(error.fault, Fault::Busy, "{error}");
    assert!(voter.withdraw(&claim(1).name, &claim(1).owner, until).await.is_err());
    server.cont();
    for answer in busy {
        assert!(matches!(answer.await.unwrap(), Ok(Vote::No { .. })));
    }
    assert!(matches!(vote(&voter, claim(1000)).await, Vote::No { .. }));
}

#[tokio::test]
async fn without_memory_a_vote_fails_clearly_and_holders_go_on() {
    let Some((server, voter, _)) = admitted().await else { return };
    let heard = listen_to(&voter);
    let fence = yes(vote(&voter, claim(1)).await).get();
    assert!(matches!(vote(&voter, waiting(2)).await, Vote::No { .. }));
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);

    let free = Claim { name: Name::new("free").unwrap(), ..claim(3) };
    for asked in [free, waiting(3)] {
        let error = voter.vote(&ballot(asked), soon()).await.unwrap_err();
        assert_eq!(error.fault, Fault::Refused(Refusal::OutOfMemory), "{error}");
    }
    assert!(matches!(vote(&voter, waiting(2)).await, Vote::No { .. }), "who waits goes on waiting");
    assert!(voter.confirm(&hold(&claim(1), fence + 1), soon()).await.unwrap());
    let holds = [claim(1).hold(Fence::new(fence))];
    assert_eq!(voter.renew(&holds, soon()).await.unwrap(), [Kept::Yes]);
    let outcome = voter.withdraw(&claim(1).name, &claim(1).owner, soon()).await.unwrap();
    assert!(outcome.was_ours && outcome.woke == 1);
    leasehold_testkit::eventually_async(PATIENCE, "the waiter to be woken", || async {
        heard.hints() == [claim(2).owner.id()]
    })
    .await;
}
