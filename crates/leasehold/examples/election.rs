//! One leader of a fleet, known to all, and a hand-over without a gap. `cargo run --example election`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use leasehold::{Leadership, Leasehold, election::Observed};
use tokio::sync::oneshot;

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> leasehold::Result<()> {
    let leases = Leasehold::connect("memory:").await?;
    let scheduler = leases.election("scheduler").poll_every(Duration::from_millis(10));
    let mut leaders = scheduler.observe()?;
    assert!(matches!(leaders.next().await, Some(Observed::Vacant { .. })));

    // Cancelled before the next leader can begin, if the lease is lost. Otherwise it runs until it is asked to end.
    let (send, leads) = oneshot::channel();
    let body = async move |leadership: Leadership| {
        send.send(leadership.clone()).ok();
        leadership.resigning().await;
    };
    let first = tokio::spawn(scheduler.clone().label("scheduler").version("1").campaign());
    let first = first.await.expect("no panic")?;
    println!("{:?}", leaders.next().await);

    // A new version waits. The old one makes it the next leader, ahead of all others.
    let second = tokio::spawn({
        let election = scheduler.clone().label("scheduler").version("2");
        async move { election.lead(body).await.map_err(leasehold::Error::from) }
    });
    while scheduler.candidates().await?.is_empty() {
        tokio::task::yield_now().await;
    }
    println!("{:?}", first.prefer(|candidate| candidate.version() == Some("2")).await?);
    println!("{:?}", leaders.next().await);

    // The program is to stop: resigning waits for the body.
    let leadership = leads.await.expect("it leads");
    assert!(leadership.resign().await?.was_held());
    second.await.expect("no panic")?;
    leases.close().await
}
