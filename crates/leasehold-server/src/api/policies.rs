//! The named policies that the service was started with.

use axum::{extract::State, response::Response};
use leasehold::{OnOutage, policy::PolicyKind};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{json::ok, state::App, views::millis};

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PoliciesView {
    locks: Vec<LockPolicyView>,
    idempotency: Vec<RecordPolicyView>,
    markers: Vec<RecordPolicyView>,
    /// The prefix of the keys of locks, if the file sets it.
    prefix: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct LockPolicyView {
    name: String,
    description: String,
    key: String,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    of: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    permits: Option<u32>,
    ttl_ms: Option<u64>,
    wait_ms: Option<u64>,
    keep_alive: Option<bool>,
    critical: bool,
    on_outage: &'static str,
}

#[derive(Debug, Serialize, JsonSchema)]
struct RecordPolicyView {
    name: String,
    description: String,
    key: String,
    ttl_ms: u64,
}

pub(crate) async fn list(State(app): State<App>) -> Response {
    let policies = app.leases.policies();
    let locks = policies.locks().map(|policy| LockPolicyView {
        name: policy.name.clone(),
        description: policy.description.clone(),
        key: policy.template().to_owned(),
        kind: match policy.kind {
            PolicyKind::Read => "read",
            PolicyKind::Write => "write",
            PolicyKind::Permits => "permits",
            _ => "exclusive",
        },
        of: policy.of.map(u32::from),
        permits: policy.permits.map(u32::from),
        ttl_ms: policy.ttl.map(millis),
        wait_ms: policy.wait.map(millis),
        keep_alive: policy.keep_alive,
        critical: policy.critical,
        on_outage: match policy.on_outage {
            OnOutage::Deny => "deny",
            OnOutage::Proceed => "proceed",
        },
    });
    let record = |policy: &leasehold::policy::RecordPolicy| RecordPolicyView {
        name: policy.name.clone(),
        description: policy.description.clone(),
        key: policy.template().to_owned(),
        ttl_ms: millis(policy.ttl),
    };
    ok(&PoliciesView {
        locks: locks.collect(),
        idempotency: policies.idempotency_keys().map(record).collect(),
        markers: policies.markers().map(record).collect(),
        prefix: policies.prefix.clone(),
    })
}
