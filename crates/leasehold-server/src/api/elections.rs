//! Elections: who leads, and who wants to. The lead is the exclusive lock of the name.

use std::time::Duration;

use axum::{extract::State, response::Response};
use leasehold::election::Observed;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::prefer::{Seconds, seconds_of};
use crate::{
    json::{Params, Places, ok},
    problem::Result,
    state::App,
    views::{Fence64, HolderView, ListOf, millis},
};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Watch {
    /// Seconds to wait until the fence of the leader is another one.
    #[schemars(with = "Option<Seconds>")]
    watch: Option<String>,
    /// The fence that is known; 0 if nobody led.
    fence: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Election")]
pub(crate) struct ElectionView {
    name: String,
    state: ElectionState,
    leader: Option<HolderView>,
    fence: Option<Fence64>,
    expires_in_ms: Option<u64>,
    /// In the order of the queue.
    candidates: Vec<HolderView>,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum ElectionState {
    Led,
    Vacant,
}

pub(crate) async fn get(
    State(app): State<App>,
    Places(name): Places<String>,
    Params(query): Params<Watch>,
) -> Result<Response> {
    let wait = query.watch.as_deref().map_or(Ok(Duration::ZERO), seconds_of)?;
    let mut leaders = app.leases.election(&name).poll_every(Duration::from_millis(200)).observe()?;
    app.elections.note(&name);
    let known = query.fence;
    let change = async {
        while let Some(seen) = leaders.next().await {
            let fence = match seen {
                Observed::Leader { fence, .. } => fence.get(),
                Observed::Vacant { .. } => 0,
                _ => continue,
            };
            if known != Some(fence) {
                break;
            }
        }
    };
    if !wait.is_zero() {
        let _nothing_changed = app.unless_draining(tokio::time::timeout(wait, change)).await?;
    }
    Ok(ok(&view(&app, name).await?))
}

async fn view(app: &App, name: String) -> Result<ElectionView> {
    let seen = app.leases.inspect(&name).await?;
    let held = seen.held();
    Ok(ElectionView {
        name,
        state: if held.is_some() { ElectionState::Led } else { ElectionState::Vacant },
        leader: held.map(|held| (&held.holder).into()),
        fence: held.map(|held| held.fence.into()),
        expires_in_ms: held.and_then(|held| held.expires_in).map(millis),
        candidates: seen.waiters.iter().map(|waiter| (&waiter.holder).into()).collect(),
    })
}

pub(crate) async fn list(State(app): State<App>) -> Result<Response> {
    let mut items = Vec::new();
    for name in app.elections.all() {
        items.push(view(&app, name).await?);
    }
    Ok(ok(&ListOf { items }))
}
