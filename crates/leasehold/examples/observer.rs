//! See what locks do: events for the program, spans for tracing. `cargo run --example observer`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::{Arc, Mutex};

use leasehold::{Event, Leasehold};
use tracing::Instrument;
use tracing_subscriber::{fmt::format::FmtSpan, prelude::*};

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> leasehold::Result<()> {
    // The spans `acquire`, `hold` and `release`; the example `opentelemetry` exports them.
    let shown =
        tracing_subscriber::fmt::layer().with_span_events(FmtSpan::CLOSE).with_writer(std::io::stderr);
    let log = tracing_subscriber::registry().with(tracing_subscriber::filter::LevelFilter::DEBUG).with(shown);
    let _until_the_end = tracing::subscriber::set_default(log);

    // In the client's own tasks: return quickly, never block.
    let seen: Arc<Mutex<Vec<&str>>> = Arc::default();
    let events = seen.clone();
    let observer = move |event: &Event| {
        events.lock().unwrap().push(match event {
            Event::Acquired { .. } => "acquired",
            Event::Lost { .. } => "lost",
            Event::Released { .. } => "released",
            _ => return,
        });
    };
    let leases = Leasehold::builder("memory:").observer(observer).connect().await?;

    // The wait for the lock and the work under it are children of the span of the order.
    let order = tracing::info_span!("order", id = 42);
    leases.lock("deal:42").run(async |_lease| println!("working")).instrument(order).await?;
    assert_eq!(*seen.lock().unwrap(), ["acquired", "released"]);

    // Counters and times of waiting and holding, for Prometheus.
    print!(
        "{}",
        leases.stats().prometheus().lines().take(6).map(|line| format!("{line}\n")).collect::<String>()
    );
    leases.close().await
}
