//! Records and marks as people see them.

use leasehold::engine::{
    Cursor,
    records::{Content, Record, State, Stored},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    auth::{Caller, Right},
    problem::Result,
    state::Service,
    views::{Fence64, HolderView, PageOf, millis, readable},
};

/// Bytes of a result that lists show.
const SHOWN: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RecordState {
    Running,
    Completed,
    Failed,
    Quarantined,
    Marked,
    Corrupt,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Record")]
pub(crate) struct RecordView {
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    state: RecordState,
    holder: Option<HolderView>,
    fence: Option<Fence64>,
    fingerprint: Option<String>,
    expires_in_ms: Option<u64>,
    /// The result, or why it failed, where it is text; cut in lists.
    result: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result_hex: Option<String>,
    result_bytes: usize,
}

impl RecordView {
    pub(crate) fn new(record: &Record) -> Self {
        let key = record.key.to_string();
        let parts = key.strip_prefix("idempotency:").and_then(|rest| rest.split_once(':'));
        let (operation, id) = parts.map(|(operation, id)| (operation.to_owned(), id.to_owned())).unzip();
        let view = Self {
            key,
            operation,
            id,
            state: RecordState::Corrupt,
            holder: None,
            fence: None,
            fingerprint: None,
            expires_in_ms: record.expires_in.map(millis),
            result: None,
            result_hex: None,
            result_bytes: 0,
        };
        match &record.content {
            Content::Stored(stored) => view.with(stored),
            Content::Mark => Self { state: RecordState::Marked, ..view },
            _ => view,
        }
    }

    fn with(self, Stored { state, fence, fingerprint }: &Stored) -> Self {
        let fingerprint = fingerprint.as_ref().map(ToString::to_string);
        let view = Self { fence: Some((*fence).into()), fingerprint, ..self };
        let (state, result) = match state {
            State::Running(owner) => {
                let holder = Some(HolderView::from(&owner.holder()));
                return Self { state: RecordState::Running, holder, ..view };
            }
            State::Completed(result) => (RecordState::Completed, result),
            State::Failed(result) => (RecordState::Failed, result),
            State::Quarantined(result) => (RecordState::Quarantined, result),
        };
        let (result_hex, text) =
            readable(result).map_or_else(|hex| (Some(hex), None), |text| (None, Some(text)));
        Self { state, result: text, result_hex, result_bytes: result.len(), ..view }
    }

    fn cut(mut self) -> Self {
        for text in [&mut self.result, &mut self.result_hex].into_iter().flatten() {
            let end = (0..=SHOWN.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
            text.truncate(end.unwrap_or_default());
        }
        self
    }
}

impl Service {
    /// One page of what lies under a prefix, as far as the caller may see it.
    pub(crate) async fn records(
        &self,
        caller: &Caller,
        prefix: &str,
        state: Option<RecordState>,
        from: &str,
        limit: usize,
    ) -> Result<PageOf<RecordView>> {
        let from = (!from.is_empty()).then(|| Cursor::new(from));
        let page = self.leases.records_page(prefix, from, u32::try_from(limit).unwrap_or(500)).await?;
        let seen = page.items.iter().filter(|record| caller.may(Right::Read, record.key.as_str()));
        let rows = seen.map(|record| RecordView::new(record).cut());
        let items = rows.filter(|row| state.is_none_or(|state| row.state == state)).collect();
        Ok(PageOf { items, next: page.next.map(|next| next.as_str().to_owned()) })
    }
}
