//! What was done to others.

use axum::{extract::State, response::Response};
use schemars::JsonSchema;
use serde::Deserialize;

use super::locks::{page_size, page_start};
use crate::{
    audit::EntryView,
    json::{Params, ok},
    problem::Result,
    state::App,
    views::PageOf,
};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ListQuery {
    /// Only what is about this name.
    name: String,
    from: String,
    /// 1 to 500. Default: 100.
    #[schemars(range(min = 1, max = 500))]
    limit: Option<u32>,
}

pub(crate) async fn list(State(app): State<App>, Params(query): Params<ListQuery>) -> Result<Response> {
    let limit = page_size(query.limit)?;
    let from = if query.from.is_empty() { 0 } else { page_start(&query.from)? };
    let mut entries = app.audit_entries().await?;
    entries.retain(|entry| query.name.is_empty() || entry.name == query.name);
    let next = (from + limit < entries.len()).then(|| (from + limit).to_string());
    let items = entries.into_iter().skip(from).take(limit).map(EntryView::from).collect();
    Ok(ok(&PageOf { items, next }))
}
