//! The store, what it can do, and the service itself.

use axum::{extract::State, response::Response};
use leasehold::engine::{Atomic, Capabilities, Handover, Member, Reach, Warning};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{json::ok, problem::Result, state::App};

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Nodes {
    engine: &'static str,
    url: String,
    capabilities: Vec<Capability>,
    health: Option<HealthView>,
    health_error: Option<String>,
    /// Of a quorum.
    members: Option<Vec<MemberView>>,
    service: ServiceView,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Capability {
    name: &'static str,
    value: String,
    /// Why it is missing.
    why: Option<&'static str>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct HealthView {
    facts: Vec<(String, String)>,
    warnings: Vec<WarningView>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct WarningView {
    code: &'static str,
    found: String,
    fix: String,
}

impl From<Warning> for WarningView {
    fn from(warning: Warning) -> Self {
        Self { code: warning.code, found: warning.found, fix: warning.cure }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
struct MemberView {
    label: String,
    state: &'static str,
    text: String,
    highest: u64,
}

impl From<Member> for MemberView {
    fn from(member: Member) -> Self {
        use leasehold::engine::MemberState;
        let state = match member.state {
            MemberState::Votes => "votes",
            MemberState::Waits { .. } => "waits",
            MemberState::Abstains { .. } => "abstains",
            MemberState::Unreachable { .. } => "unreachable",
        };
        let (text, highest) = (member.state.to_string(), member.highest.get());
        Self { label: member.label, state, text, highest }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
struct ServiceView {
    version: &'static str,
    host: String,
    pid: u32,
    started_at_ms: u64,
    sessions: usize,
    attempts: usize,
    executions: usize,
    connections: usize,
    event_clients: usize,
}

pub(crate) async fn get(State(app): State<App>) -> Result<Response> {
    let leases = &app.leases;
    let (health, health_error) = match leases.health().await {
        Ok(health) => {
            let warnings = health.warnings.into_iter().map(WarningView::from).collect();
            (Some(HealthView { facts: health.facts, warnings }), None)
        }
        Err(error) => (None, Some(error.to_string())),
    };
    let members = match leases.quorum() {
        Ok(quorum) => Some(quorum.list().await.into_iter().map(MemberView::from).collect()),
        Err(_) => None,
    };
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let service = ServiceView {
        version: env!("CARGO_PKG_VERSION"),
        host,
        pid: std::process::id(),
        started_at_ms: app.started_at_ms,
        sessions: app.sessions.len(),
        attempts: app.attempts.len(),
        executions: app.executions.len(),
        connections: app.connected(),
        event_clients: app.events.clients(),
    };
    let capabilities = capabilities(leases.capabilities());
    let (engine, url) = (leases.capabilities().engine, leases.store().to_owned());
    Ok(ok(&Nodes { engine, url, capabilities, health, health_error, members, service }))
}

fn capabilities(of: &Capabilities) -> Vec<Capability> {
    let word = |name, value: String| Capability { name, value, why: None };
    let unless = |name, why: Option<&'static str>| Capability {
        name,
        value: if why.is_none() { "yes" } else { "no" }.into(),
        why,
    };
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
    let reach = match of.reach {
        Reach::Process => "process",
        Reach::Host => "host",
        _ => "network",
    };
    let ttl = format!("{:?} to {:?}", of.ttl.start(), of.ttl.end());
    vec![
        word("reach", reach.into()),
        word("handover", if of.handover == Handover::Push { "push" } else { "pull" }.into()),
        word("durable", yes(of.durable)),
        word("name_max_bytes", of.name_max_bytes.to_string()),
        word("ttl", ttl),
        word("ttl_step", format!("{:?}", of.ttl_step)),
        word("reports_loss", yes(of.reports_loss)),
        word("claim_all", yes(of.claim_all != Atomic::No)),
        unless("shared", of.no_shared),
        unless("permits", of.no_permits),
        unless("convert", of.no_convert),
        unless("redisson", of.no_redisson),
        unless("acks", of.no_acks),
        unless("hand_to", of.no_hand_to),
    ]
}
