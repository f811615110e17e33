//! Many readers or one writer, and a writer that goes on as a reader. `cargo run --example read_write`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use leasehold::{Leasehold, Mode, Upgrade};

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> leasehold::Result<()> {
    let leases = Leasehold::connect("memory:").await?;

    // Readers share the lock. A writer waits for them, and readers that come later wait behind the writer.
    let reader = leases.read_lock("catalogue").acquire().await?;
    let another = leases.read_lock("catalogue").acquire().await?;
    assert!(leases.write_lock("catalogue").try_acquire().await?.held().is_none());
    println!("{} readers", leases.inspect("catalogue").await?.holders.total);
    assert!(another.release().await?.was_held());

    // The only reader may become the writer. Two that both waited for that would wait for ever, so it never waits.
    let writer = match reader.try_upgrade().await? {
        Upgrade::Done(writer) => writer,
        Upgrade::Busy(reader) => panic!("somebody reads beside {}", reader.fence()),
    };
    println!("UPDATE catalogue SET price = 7, fence = {0} WHERE fence <= {0}", writer.fence());

    // Done writing: others may read what was written, and nobody else has written before this one reads it.
    let reader = writer.downgrade().await?;
    assert_eq!(reader.mode(), Mode::Shared);
    let another = leases.read_lock("catalogue").acquire().await?;
    for guard in [reader, another] {
        assert!(guard.release().await?.was_held());
    }
    leases.close().await
}
