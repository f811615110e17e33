//! Who did what to whom: every act that takes something from others is noted in the store before it is done, and its outcome
//! after it.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use leasehold::audit::{self, Kept};
pub(crate) use leasehold::audit::{Action, Entry};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    events::Topic,
    problem::{Problem, Result},
    state::Service,
    views::Fence64,
};

/// Entries that the service remembers itself.
const REMEMBERED: usize = 1_000;
/// Longest reason, in characters.
pub(crate) const REASON_MAX: usize = 500;

/// An entry as answers show it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "AuditEntry")]
pub(crate) struct EntryView {
    id: String,
    at_ms: u64,
    #[schemars(with = "ActionWord")]
    action: Action,
    name: String,
    fence: Option<Fence64>,
    /// The name of the token, or who was at the terminal.
    by: String,
    /// The address of the caller, or the host of the terminal.
    from: String,
    reason: Option<String>,
    /// `requested` until the outcome is known.
    outcome: String,
    #[schemars(with = "KeptWord")]
    kept: Kept,
}

impl From<Entry> for EntryView {
    fn from(entry: Entry) -> Self {
        let Entry { id, at_ms, action, name, fence, by, from, reason, outcome, kept, .. } = entry;
        let fence = fence.map(Fence64);
        Self { id, at_ms, action, name, fence, by, from, reason, outcome, kept }
    }
}

/// The words of an action.
#[derive(JsonSchema)]
#[schemars(rename = "Action", rename_all = "snake_case")]
#[expect(dead_code, reason = "only its schema is used")]
enum ActionWord {
    ForceRelease,
    SetLimit,
    RemoveRecord,
    Requeue,
}

/// The words for where an entry is kept.
#[derive(JsonSchema)]
#[schemars(rename = "Kept", rename_all = "snake_case")]
#[expect(dead_code, reason = "only its schema is used")]
enum KeptWord {
    Store,
    /// The store keeps no records: the entry ends with the service.
    Memory,
}

/// What the service remembers itself, newest last.
#[derive(Debug, Default)]
pub(crate) struct Audit(Mutex<VecDeque<Entry>>);

impl Audit {
    fn recent(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, entry: &Entry) {
        let mut recent = self.recent();
        if let Some(known) = recent.iter_mut().find(|known| known.id == entry.id) {
            *known = entry.clone();
            return;
        }
        if recent.len() >= REMEMBERED {
            recent.pop_front();
        }
        recent.push_back(entry.clone());
    }
}

/// What is about to be done.
pub(crate) struct Act<'a> {
    pub(crate) action: Action,
    pub(crate) name: &'a str,
    pub(crate) fence: Option<u64>,
    pub(crate) by: &'a str,
    pub(crate) from: String,
    pub(crate) reason: Option<String>,
}

impl Service {
    /// Notes an act, does it, and notes its outcome. What cannot be noted is not done.
    pub(crate) async fn audited<T>(
        &self,
        act: Act<'_>,
        work: impl Future<Output = Result<T>>,
        outcome: impl FnOnce(&T) -> String,
    ) -> Result<T> {
        let Act { action, name, fence, by, from, reason } = act;
        let mut entry = Entry::new(action, name, by, from);
        (entry.fence, entry.reason) = (fence, reason);
        audit::begin(&self.leases, &mut entry).await?;
        tracing::warn!(id = %entry.id, ?action, name = %entry.name, by = %entry.by, from = %entry.from, "audit");
        self.audit.remember(&entry);
        let done = work.await;
        let outcome = match &done {
            Ok(done) => outcome(done),
            Err(problem) => format!("failed: {}", problem.detail()),
        };
        if let Err(error) = audit::end(&self.leases, &mut entry, outcome).await {
            tracing::error!(id = %entry.id, outcome = %entry.outcome, %error, "the outcome is not in the audit");
        }
        self.audit.remember(&entry);
        self.events.publish(Topic::Audit, "audit", &EntryView::from(entry));
        done
    }

    /// The entries, newest first; those of the store if it keeps any.
    pub(crate) async fn audit_entries(&self) -> Result<Vec<Entry>> {
        let mut entries: BTreeMap<String, Entry> =
            self.audit.recent().iter().map(|entry| (entry.id.clone(), entry.clone())).collect();
        for entry in audit::entries(&self.leases).await? {
            // The service may know an outcome that the store does not have.
            entries.entry(entry.id.clone()).or_insert(entry);
        }
        Ok(entries.into_values().rev().collect())
    }

    /// The entries about one name that this service remembers, newest first.
    pub(crate) fn audit_of(&self, name: &str, most: usize) -> Vec<EntryView> {
        let recent = self.audit.recent();
        recent
            .iter()
            .rev()
            .filter(|entry| entry.name == name)
            .take(most)
            .cloned()
            .map(EntryView::from)
            .collect()
    }
}

/// A reason that says something.
pub(crate) fn checked_reason(reason: &str) -> Result<String> {
    let reason = reason.trim();
    let is_good = !reason.is_empty()
        && reason.chars().count() <= REASON_MAX
        && !reason.chars().any(|c| c.is_control() && c != '\n');
    if is_good {
        return Ok(reason.to_owned());
    }
    let detail = format!("a reason is needed: 1 to {REASON_MAX} printable characters");
    Err(Problem::invalid(detail).at("/reason".into()))
}
