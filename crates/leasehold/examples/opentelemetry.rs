//! The spans of locks in OpenTelemetry, as children of the program's own. `cargo run --example opentelemetry`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::collections::BTreeMap;

use leasehold::{Leasehold, Policies};
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};
use tracing::Instrument;
use tracing_subscriber::{filter::LevelFilter, prelude::*};

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> leasehold::Result<()> {
    // A program sends them to a collector instead, with the crate opentelemetry-otlp:
    // `.with_batch_exporter(opentelemetry_otlp::SpanExporter::builder().with_tonic().build()?)`
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let telemetry = tracing_opentelemetry::layer().with_tracer(provider.tracer("orders"));
    // The spans of the library have the level debug.
    let subscriber = tracing_subscriber::registry().with(LevelFilter::DEBUG).with(telemetry);
    let until_the_end = tracing::subscriber::set_default(subscriber);

    let policies = Policies::parse("[locks.deal]\nkey = 'deal:{id}'\nttl = '30s'", "policies.toml")?;
    let leases = Leasehold::builder("memory:").policies(policies).connect().await?;
    let order = tracing::info_span!("order", id = 42);
    leases.lock_policy("deal")?.key([("id", 42)]).run(async |_lease| ()).instrument(order).await?;
    leases.close().await?;
    drop(until_the_end);

    let spans = exporter.get_finished_spans().unwrap();
    let order = spans.iter().find(|span| span.name == "order").unwrap().span_context.span_id();
    for name in ["acquire", "hold", "release"] {
        let span = spans.iter().find(|span| span.name == name).unwrap();
        assert_eq!(span.parent_span_id, order);
        // The fence is known once the lock is acquired: then the span has an event with it.
        let acquired = span.events.iter().flat_map(|event| &event.attributes);
        let values = span.attributes.iter().chain(acquired).map(|it| (it.key.as_str(), it.value.as_str()));
        let values: BTreeMap<_, _> = values.collect();
        println!("{name}: name {}, policy {}, fence {}", values["name"], values["policy"], values["fence"]);
        assert!(values["name"] == "deal:42" && values["policy"] == "deal" && values["fence"] != "0");
    }
    Ok(())
}
