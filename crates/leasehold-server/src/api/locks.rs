//! Locks: list, inspect, extend, release, history.

use axum::{Extension, extract::State, response::Response};
use http::{HeaderValue, StatusCode, header};
use leasehold::{Fence, Released};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::acquire::Held;
use crate::{
    audit::EntryView,
    auth::{Caller, Right},
    history::{Filter, HoldHistogram, Pair, TenureRow},
    json::{Json, Params, Places, Span, ok},
    problem::{Problem, Result},
    state::{App, Service},
    token::{self, Granted, LockKey},
    views::{HolderRow, LockRow, ModeWord, WaiterRow},
};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ListQuery {
    /// What names begin with.
    prefix: String,
    /// Words with commas between them: held, waiting.
    state: String,
    mode: Option<ModeWord>,
    /// Part of the label or the host of the first holder.
    holder: String,
    /// Only those that somebody waits for.
    waiting: bool,
    sort: Sort,
    /// `next` of the page before.
    from: String,
    /// 1 to 500. Default: 100.
    #[schemars(range(min = 1, max = 500))]
    limit: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Sort {
    #[default]
    Name,
    Waiting,
    Age,
    Expires,
}

/// A page of locks, as the service saw them last.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LockPage {
    items: Vec<LockRow>,
    next: Option<String>,
    /// The poll that it is from.
    seq: u64,
    at_ms: u64,
    /// How many match.
    total: usize,
}

pub(crate) fn page_size(limit: Option<u32>) -> Result<usize> {
    match limit.unwrap_or(100) {
        limit @ 1..=500 => Ok(limit as usize),
        limit => Err(Problem::invalid(format!("limit is {limit}: expected 1 to 500"))),
    }
}

pub(crate) async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Params(query): Params<ListQuery>,
) -> Result<Response> {
    let limit = page_size(query.limit)?;
    let from: usize = if query.from.is_empty() { 0 } else { page_start(&query.from)? };
    let words = query.state.split(',').map(str::trim).filter(|word| !word.is_empty());
    let filter = Filter {
        prefix: &query.prefix,
        states: words.collect(),
        mode: query.mode,
        holder: Some(query.holder.to_lowercase()).filter(|text| !text.is_empty()),
        waiting: query.waiting,
    };
    if let Some(word) = filter.states.iter().find(|word| !["held", "waiting"].contains(word)) {
        return Err(Problem::invalid(format!("state is \"{word}\": expected held or waiting")));
    }
    app.watched_now();
    let (seq, at_ms) = app.history.seq();
    let mut rows = app.history.locks(&filter, |name| caller.may(Right::Read, name));
    match query.sort {
        Sort::Name => {}
        Sort::Waiting => rows.sort_by_key(|row| std::cmp::Reverse(row.waiting)),
        Sort::Age => rows.sort_by_key(|row| std::cmp::Reverse(row.held_for_ms)),
        Sort::Expires => rows.sort_by_key(|row| row.expires_in_ms.unwrap_or(u64::MAX)),
    }
    let total = rows.len();
    let next = (from + limit < total).then(|| (from + limit).to_string());
    let items = rows.into_iter().skip(from).take(limit).collect();
    Ok(ok(&LockPage { items, next, seq, at_ms, total }))
}

pub(crate) fn page_start(from: &str) -> Result<usize> {
    from.parse().map_err(|_| Problem::invalid("from is no cursor of this list: use next of the page before"))
}

/// One lock, as the store sees it at this moment.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LockDetail {
    #[serde(flatten)]
    row: LockRow,
    holders: Vec<HolderRow>,
    /// In the order of the queue.
    waiters: Vec<WaiterRow>,
}

pub(crate) async fn inspect(State(app): State<App>, Places(name): Places<String>) -> Result<Response> {
    let seen = app.leases.inspect(&name).await?;
    let mut row = LockRow::from(&seen);
    app.history.complete(&mut row);
    let tag = row.fence.map(|fence| format!("\"{}\"", fence.0));
    let holders = seen.holders.shown.iter().map(HolderRow::from).collect();
    let waiters = seen.waiters.iter().map(WaiterRow::from).collect();
    let mut response = ok(&LockDetail { row, holders, waiters });
    if let Some(tag) = tag.and_then(|tag| HeaderValue::try_from(tag).ok()) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    Ok(response)
}

/// What the service has seen of one lock.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LockHistory {
    name: String,
    since_ms: u64,
    /// Newest first.
    tenures: Vec<TenureRow>,
    hold_histogram: HoldHistogram,
    waited: Vec<Pair>,
    audit: Vec<EntryView>,
    commands: Commands,
}

/// The same as commands.
#[derive(Debug, Serialize, JsonSchema)]
struct Commands {
    inspect: String,
    force_release: Option<String>,
    run: String,
}

pub(crate) async fn history(State(app): State<App>, Places(name): Places<String>) -> Result<Response> {
    let (tenures, hold_histogram) = app.history.tenures_of(&name, 100);
    let waited = app.history.pairs(|pair| pair.names.contains(&name), 50);
    let held = tenures.first().filter(|tenure| tenure.to_ms.is_none()).map(|tenure| tenure.fence.0);
    let (word, store) = (shell_word(&name), shell_word(app.leases.store()));
    let commands = Commands {
        inspect: format!("leasehold inspect {word} --store {store}"),
        force_release: held
            .map(|fence| format!("leasehold force-release {word} --fence {fence} --store {store}")),
        run: format!("leasehold run {word} --store {store} -- CMD"),
    };
    let (since_ms, audit) = (app.history.since_ms, app.audit_of(&name, 20));
    Ok(ok(&LockHistory { name, since_ms, tenures, hold_histogram, waited, audit, commands }))
}

/// A word as a shell reads it.
fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:,@%+=".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Extend {
    token: String,
    /// Default: the ttl it was acquired with.
    ttl: Option<Span>,
}

pub(crate) async fn extend(
    State(app): State<App>,
    Places(name): Places<String>,
    Json(body): Json<Extend>,
) -> Result<Response> {
    let handle = token::read(&body.token, &name)?;
    let asked_at = app.clock.now();
    let ttl = body.ttl.map_or(handle.ttl(), |ttl| ttl.0);
    handle.extend(&app.leases, Some(ttl)).await?;
    let valid_until = leasehold::lease::validity::valid_until(asked_at, ttl);
    let granted = Granted { handle, valid_until };
    app.attempts.extended(&granted.key(), valid_until);
    Ok(Held::new(&app, &granted, None, None).lasting(ttl).answer())
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Release {
    token: String,
}

pub(crate) async fn release(
    State(app): State<App>,
    Places(name): Places<String>,
    Json(body): Json<Release>,
) -> Result<StatusCode> {
    let handle = token::read(&body.token, &name)?;
    let released = handle.release(&app.leases).await?;
    app.ended(&LockKey::of(&handle));
    match released {
        Released::Expired => Err(Problem::lost(&name)),
        Released::Taken { by } => Err(Problem::taken(&name, by)),
        _ => Ok(StatusCode::NO_CONTENT),
    }
}

impl Service {
    /// A lock is not held through this service any more.
    pub(crate) fn ended(&self, lock: &LockKey) {
        self.sessions.forget(lock);
        self.attempts.ended(lock, self.clock.now());
    }
}

/// The fence of a header such as `If-Match: "17"`.
pub(crate) fn fence_of(tag: &str) -> Result<Fence> {
    let digits = tag.trim().trim_matches('"');
    Ok(digits.parse()?)
}
