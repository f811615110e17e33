//! Names and times of all locks in one file, checked at start-up. `cargo run --example policies`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use leasehold::{Leasehold, Policies};

const FILE: &str = r#"
[locks.payout]
description = "one payout of a deal at a time"
key = "payout:{deal}"
ttl = "60s"
wait = "5s"
retry = "100ms..1s"
max-attempts = 100
keep-alive = true
critical = true

[idempotency.payout]
key = "idempotency:payout:{deal}"
ttl = "24h"

[markers.upload]
key = "upload:{account}:{file}"
ttl = "5m"
"#;

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> leasehold::Result<()> {
    // A program loads "leasehold.toml": `Leasehold::from_env()`, or `Policies::load(path)`.
    let policies = Policies::parse(FILE, "policies.toml")?;
    let leases = Leasehold::builder("memory:").policies(policies).connect().await?;

    let guard = leases.lock_policy("payout")?.key([("deal", 42)]).acquire().await?;
    assert_eq!(guard.name().as_str(), "payout:42");
    let once = leases.idempotency_policy("payout")?.key([("deal", 42)]);
    assert!(once.at_most_once().await?.is_first());
    let uploads = leases.marker_policy("upload")?;
    assert!(uploads.mark_if_absent([("account", "acme"), ("file", "a.csv")]).await?);

    // A typo is an error at once, and not a second lock beside the right one.
    println!("{}", leases.lock_policy("pay-out").unwrap_err());
    println!("{}", Policies::parse("[locks.a]\nkey = \"a\"\ntll = \"1s\"", "typo.toml").unwrap_err());
    assert!(guard.release().await?.was_held());

    // What was counted, by policy.
    let text = leases.stats().prometheus();
    assert!(text.contains("leasehold_acquired_total{policy=\"payout\",mode=\"exclusive\"} 1"));
    leases.close().await
}
