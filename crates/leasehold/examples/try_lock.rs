//! Skip what another holder is working on. `cargo run --example try_lock`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use leasehold::{Attempt, Leasehold};

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> leasehold::Result<()> {
    let leases = Leasehold::connect("memory:").await?;
    let other = leases.lock("domain:b.example").label("crawler 1").acquire().await?;

    let mut fetched = Vec::new();
    for domain in ["a.example", "b.example", "c.example"] {
        // One command to the store, no place in the queue. A lock that is held is an answer, not an error.
        match leases.lock(format!("domain:{domain}")).label("crawler 2").try_acquire().await? {
            Attempt::Held(guard) => {
                fetched.push(domain);
                assert!(guard.release().await?.was_held());
            }
            Attempt::Busy { holder, retry_after } => {
                let holder = holder.map_or("somebody".to_owned(), |holder| holder.to_string());
                println!("{holder} is at {domain}; look again in {retry_after:?}");
            }
        }
    }
    assert_eq!(fetched, ["a.example", "c.example"]);
    assert!(other.release().await?.was_held());
    leases.close().await
}
