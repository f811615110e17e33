//! The playground: see it, add workers, crash and pause them.

use std::time::Duration;

use axum::{extract::State, response::Response};
use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    json::{Json, Places, Span, answer, ok},
    playground::{Command, PAUSE_MAX},
    problem::{Problem, Result},
    state::App,
};

async fn view(app: &App) -> Result<crate::playground::PlaygroundView> {
    Ok(app.playground.enter(app)?.view(app.wall_ms()).await)
}

pub(crate) async fn get(State(app): State<App>) -> Result<Response> {
    Ok(ok(&view(&app).await?))
}

pub(crate) async fn add(State(app): State<App>) -> Result<Response> {
    app.playground.enter(&app)?.add()?;
    Ok(answer(StatusCode::CREATED, &view(&app).await?))
}

pub(crate) async fn crash(State(app): State<App>, Places(id): Places<u32>) -> Result<Response> {
    command(&app, id, Command::Crash).await
}

pub(crate) async fn stop(State(app): State<App>, Places(id): Places<u32>) -> Result<Response> {
    command(&app, id, Command::Stop).await
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pause {
    /// Default: 8s, longer than the ttl; at most 30s.
    #[serde(rename = "for")]
    time: Option<Span>,
}

pub(crate) async fn pause(
    State(app): State<App>,
    Places(id): Places<u32>,
    Json(body): Json<Pause>,
) -> Result<Response> {
    let time = body.time.map_or(Duration::from_secs(8), |time| time.0);
    if time > PAUSE_MAX {
        let detail = format!("a pause lasts at most {} s", PAUSE_MAX.as_secs());
        return Err(Problem::invalid(detail).at("/for".into()));
    }
    command(&app, id, Command::Pause(time)).await
}

pub(crate) async fn reset(State(app): State<App>) -> Result<Response> {
    app.playground.reset();
    Ok(ok(&view(&app).await?))
}

async fn command(app: &App, id: u32, command: Command) -> Result<Response> {
    app.playground.enter(app)?.command(id, command)?;
    Ok(ok(&view(app).await?))
}
