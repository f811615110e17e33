//! Latches and barriers: all wait for all, and a dead one is told by name.

mod barrier;
mod contract;
mod latch;

use leasehold::{
    Holder, Latch, Leasehold, Participant,
    latch::{Awaited, Standing},
};

use super::{
    Case, TestContext,
    context::{ms, soon},
    eventually,
};

pub(super) fn cases() -> Vec<Case> {
    [barrier::CASES, latch::CASES, contract::CASES].concat()
}

/// A latch whose participants live long.
fn latch(client: &Leasehold, count: u32) -> Latch {
    client.latch("migration", count).ttl(ms(60_000))
}

async fn join(latch: &Latch, label: &str) -> Participant {
    latch.clone().label(label).join().await.unwrap().joined().expect("there is room")
}

fn label(who: Option<&Holder>) -> &str {
    match who {
        Some(Holder::Leasehold { label, .. }) => label,
        _ => panic!("nobody is named: {who:?}"),
    }
}

/// Who broke it.
fn broken_by(awaited: &Awaited) -> &str {
    match awaited {
        Awaited::Broken { who, .. } => label(who.as_ref()),
        other => panic!("not broken: {other:?}"),
    }
}

async fn standing(latch: &Latch) -> Standing {
    latch.state().await.unwrap().expect("it was used").standing
}

async fn wait(latch: &Latch) -> Awaited {
    soon("the latch is over", latch.wait(ms(60_000))).await.unwrap()
}

async fn until_missing(latch: &Latch, count: u32) {
    eventually("others count down", async || standing(latch).await == Standing::Armed { missing: count })
        .await;
}

/// Starts to wait, and returns once the store knows of it: by then it has asked, and a message wakes it.
async fn start_to_wait(latch: &Latch) -> tokio::task::JoinHandle<Awaited> {
    let waiting = latch.clone();
    let mut task = tokio::spawn(async move { wait(&waiting).await });
    let still_waits = tokio::time::timeout(ms(100), &mut task).await.is_err();
    assert!(still_waits, "it waits");
    task
}
