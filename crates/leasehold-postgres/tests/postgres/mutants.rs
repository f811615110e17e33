//! Forms of a claim that let two in. They show that the tests of the shipped form can fail.

use std::sync::Arc;

use leasehold::engine::{Engine, Mode};

use super::{LONG, claim, database, engine, is_granted};

/// How many claim one new name at the same time.
const AT_ONCE: usize = 6;
const ROUNDS: usize = 30;
/// A broken form shows within so many.
const ROUNDS_MAX: usize = 400;

/// How many of those who claim one new name at the same time get it.
async fn winners(engines: &[Arc<dyn Engine>], round: usize) -> usize {
    let claims = engines.iter().enumerate().map(|(who, engine)| {
        let claim =
            claim((round * AT_ONCE + who) as u128 + 1, &format!("round {round}"), Mode::Exclusive, LONG);
        let engine = engine.clone();
        tokio::spawn(async move { is_granted(&engine, &claim).await })
    });
    let mut granted = 0;
    for claim in claims.collect::<Vec<_>>() {
        granted += usize::from(claim.await.unwrap());
    }
    granted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_those_who_claim_a_new_name_gets_it() {
    let Some((server, database)) = database() else { return };
    let engines: Vec<_> = (0..AT_ONCE).map(|_| engine(&server.url(&database))).collect();
    for round in 0..ROUNDS {
        assert_eq!(winners(&engines, round).await, 1, "round {round}");
    }
}

/// The row is read without a lock, and written by an unconditional upsert.
const UNLOCKED: &str = "
    CREATE OR REPLACE FUNCTION leasehold.lock_row(lock_name text) RETURNS leasehold.locks LANGUAGE plpgsql AS $$
    DECLARE
        l leasehold.locks;
    BEGIN
        SELECT * INTO l FROM leasehold.locks WHERE name = lock_name;
        IF NOT FOUND THEN
            l := (lock_name, 0, NULL, NULL, 0, 0, NULL, NULL, false, false);
        END IF;
        PERFORM pg_sleep(0.005);
        RETURN l;
    END $$;
    CREATE OR REPLACE FUNCTION leasehold.write(l leasehold.locks) RETURNS void LANGUAGE sql AS $$
        INSERT INTO leasehold.locks SELECT (l).*
        ON CONFLICT (name) DO UPDATE SET fence = excluded.fence, id = excluded.id, ends = excluded.ends
    $$;";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unconditional_upsert_lets_two_in() {
    let Some((server, database)) = database() else { return };
    server.sql(&database, UNLOCKED);
    let engines: Vec<_> = (0..AT_ONCE).map(|_| engine(&server.url(&database))).collect();
    for round in 0..ROUNDS_MAX {
        if winners(&engines, round).await > 1 {
            return;
        }
    }
    panic!("{ROUNDS_MAX} rounds with one winner each: the test does not see what it is for");
}

/// `now()` is frozen at the start of a transaction, so a lease that has ended looks held.
#[tokio::test]
async fn a_frozen_clock_keeps_an_expired_lease() {
    let Some((server, database)) = database() else { return };
    let ended = |now: &str| {
        let frozen = format!(
            "CREATE OR REPLACE FUNCTION leasehold.now_us() RETURNS bigint LANGUAGE sql VOLATILE AS \
             $$ SELECT (extract(epoch FROM {now}) * 1000000)::bigint $$;"
        );
        server.sql(&database, &frozen);
        let in_one_transaction = "BEGIN; SELECT outcome FROM leasehold.claim(gen_random_uuid()::text || 'x', ttl_ms => 50); \
             SELECT pg_sleep(0.2) IS NULL; SELECT bool_and(ends < leasehold.now_us()) FROM leasehold.locks; ROLLBACK;";
        server.sql(&database, in_one_transaction).ends_with('t')
    };
    assert!(ended("clock_timestamp()"));
    assert!(!ended("now()"));
}
