//! Latches and barriers: what the functions decide, and how they are forgotten.

use std::{sync::Arc, time::Duration};

use leasehold::{
    engine::{
        Engine,
        latches::{Answer, Kind, Op, Request, Said, Standing},
    },
    latch::Arrived,
    owner::{Holder, Owner},
};

use leasehold_testkit::eventually_async;

use super::{LONG, database, engine, latch_walk, name, soon};

const JOIN: Op = Op::Join { ttl: LONG };

/// A request about a latch of two.
fn request(random: u128, latch: &str, op: Op) -> Request {
    let owner = Owner::new(random, &Holder::this_process(&random.to_string(), 1));
    Request { name: name(latch), kind: Kind::Latch, count: 2.try_into().unwrap(), owner, op }
}

async fn ask(engine: &Arc<dyn Engine>, random: u128, latch: &str, op: Op) -> Answer {
    engine.latches().unwrap().ask(&request(random, latch, op), soon()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_functions_decide_about_latches_as_the_pure_decider_does() {
    let Some((server, database)) = database() else { return };
    latch_walk::assert_varied(&latch_walk::walk(&engine(&server.url(&database)), 24).await);
}

/// All of it by transactions that see one picture from their first statement on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parties_that_are_serializable_by_default_pass_together() {
    let Some((server, database)) = database() else { return };
    let isolation = format!("ALTER DATABASE {database} SET default_transaction_isolation = 'serializable'");
    server.sql("postgres", &isolation);
    let leases = leasehold::Leasehold::connect(server.url(&database)).await.unwrap();
    let parties: Vec<_> = (0..5)
        .map(|_| {
            let barrier = leases.barrier("phase", 5).ttl(LONG);
            tokio::spawn(async move {
                let party = barrier.join().await.unwrap().joined().expect("there is room");
                for _ in 0..5 {
                    assert!(matches!(party.arrive().await.unwrap(), Arrived::Passed { .. }));
                }
                party.leave().await.unwrap();
            })
        })
        .collect();
    for party in parties {
        party.await.unwrap();
    }
    leases.close().await.unwrap();
}

#[tokio::test]
async fn what_is_over_is_forgotten_two_days_later_and_nothing_that_is_in_use() {
    let Some((server, database)) = database() else { return };
    let engine = engine(&server.url(&database));
    let generation = ask(&engine, 1, "over", JOIN).await.generation;
    ask(&engine, 1, "over", Op::Leave { breaks: true }).await;
    ask(&engine, 2, "in use", JOIN).await;
    let rows = || server.sql(&database, "SELECT string_agg(name, ' ' ORDER BY name) FROM leasehold.latches");
    ask(&engine, 3, "one more", Op::Look { generation: None, wake: false }).await;
    assert_eq!(rows(), "in use one more over");
    // Nothing is swept before its day has passed.
    server.sql(&database, "UPDATE leasehold.latches SET sweep_day = sweep_day - 3");
    ask(&engine, 3, "another", Op::Look { generation: None, wake: false }).await;
    assert_eq!(rows(), "another in use");
    let broken = Said::Stands(Standing::Broken { who: None });
    let look = Op::Look { generation: Some(generation), wake: false };
    assert_eq!(ask(&engine, 4, "over", look).await.said, broken);
    // Armed again, it has a later generation.
    assert!(ask(&engine, 4, "over", JOIN).await.generation > generation);
    assert_eq!(ask(&engine, 4, "over", look).await.said, broken);
}

#[tokio::test]
async fn a_join_that_arrives_after_its_end_is_refused_by_the_database() {
    let Some((server, database)) = database() else { return };
    let engine = engine(&server.url(&database));
    let late = request(1, "late", JOIN);
    let id = late.owner.id_text();
    // The end of an attempt whose request to join may still arrive, also of a latch that is not there yet.
    server.sql(&database, &format!("SELECT leasehold.leave_latch('late', '{id}', may_arrive => true)"));
    let error = engine.latches().unwrap().ask(&late, soon()).await.unwrap_err();
    assert_eq!(error.fault, leasehold::engine::Fault::Ended);
    assert!(engine.latches().unwrap().state(&name("late"), soon()).await.unwrap().is_none());
}

#[tokio::test]
async fn a_renewal_that_waits_for_a_latch_that_breaks_is_refused() {
    let Some((server, database)) = database() else { return };
    let url = server.url(&database);
    let (engine, app) = (engine(&url), super::session(&url).await);
    let generation = ask(&engine, 1, "x", JOIN).await.generation;
    let other = ask(&engine, 2, "x", JOIN).await;
    assert_eq!(other.said, Said::Joined);
    let hold = request(1, "x", JOIN).hold(generation, LONG);
    let leaver = request(2, "x", JOIN).owner;
    let leaves = format!("BEGIN; SELECT leasehold.leave_latch('x', '{}')", leaver.id_text());
    app.batch_execute(&leaves).await.unwrap();
    let (renewing, held) = (engine.clone(), hold.clone());
    let renewed = tokio::spawn(async move { renewing.leases().renew(&[held], soon()).await });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
    eventually_async(Duration::from_secs(60), "it to wait", || async { server.sql(&database, waits) == "1" })
        .await;
    app.batch_execute("COMMIT").await.unwrap();
    assert_eq!(renewed.await.unwrap().unwrap().remove(0).unwrap(), leasehold::engine::Renewed::Gone);
}

#[tokio::test]
async fn a_round_of_renewals_and_an_end_of_the_latch_do_not_wait_for_each_other() {
    let Some((server, database)) = database() else { return };
    let url = server.url(&database);
    let (engine, app) = (engine(&url), super::session(&url).await);
    let of_three = |random, op| Request { count: 3.try_into().unwrap(), ..request(random, "x", op) };
    for random in 1..=3 {
        let joined = engine.latches().unwrap().ask(&of_three(random, JOIN), soon()).await.unwrap();
        assert_eq!(joined.said, Said::Joined);
    }
    let renew = |random: u128| {
        let owner = format!("{random:032x}");
        format!(
            "SELECT leasehold.renew(ARRAY['latch'], ARRAY['x'], ARRAY['{owner}'::uuid], ARRAY[60000], NULL)"
        )
    };
    // A round renews the second, then the first; meanwhile the third ends the participation of all.
    app.batch_execute(&format!("BEGIN; {}", renew(2))).await.unwrap();
    let (leaving, leave) = (engine.clone(), of_three(3, Op::Leave { breaks: true }));
    let left = tokio::spawn(async move { leaving.latches().unwrap().ask(&leave, soon()).await });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
    eventually_async(Duration::from_secs(60), "it to wait", || async { server.sql(&database, waits) == "1" })
        .await;
    app.batch_execute(&format!("{}; COMMIT", renew(1))).await.unwrap();
    assert_eq!(left.await.unwrap().unwrap().said, Said::Left);
    assert_eq!(
        server.sql(&database, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"),
        "0"
    );
}
