//! Say that something is in progress, for a while. `cargo run --example marker`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use leasehold::{Attempt, Leasehold, marker::Cleared};

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> leasehold::Result<()> {
    let leases = Leasehold::connect("memory:").await?;
    let uploads = leases.marker("upload").layout("upload:{account}:{file}").ttl(Duration::from_secs(300));

    // One step, so of many that ask at once one is told to go on. The mark ends by itself.
    assert!(uploads.mark_if_absent(("acme", "a.csv")).await?);
    assert!(!uploads.mark_if_absent(("acme", "a.csv")).await?, "another upload of it is in progress");

    // Many at once, in one round trip.
    let files = [("acme", "a.csv"), ("acme", "b.csv")];
    assert_eq!(uploads.are_marked(files).await?, [true, false]);

    // Anybody can clear a plain mark. A guard is renewed while you work, and nobody else can clear it.
    assert_eq!(uploads.clear(("acme", "a.csv")).await?, Cleared::Cleared);
    let Attempt::Held(guard) = uploads.guard(("acme", "b.csv")).await? else {
        panic!("nobody else has it");
    };
    assert_eq!(uploads.clear(("acme", "b.csv")).await?, Cleared::Guarded);
    println!("checking b.csv under fence {}", guard.fence());
    println!("finished: {:?}", guard.finish().await?);
    assert!(!uploads.is_marked(("acme", "b.csv")).await?);
    leases.close().await
}
