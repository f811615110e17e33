//! Who did what to whom: every act that takes something from others is noted in the store before it is done, and its outcome
//! after it.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use leasehold::{
    ErrorKind,
    idempotency::{Begun, Content, State as RecordState},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    events::Topic,
    problem::{Problem, Result},
    state::{Service, secret},
    views::Fence64,
};

/// The operation under which entries lie in the store, as records.
const OPERATION: &str = "leasehold-audit";
const KEPT_FOR: Duration = Duration::from_secs(90 * 86_400);
/// Entries that the service remembers itself.
const REMEMBERED: usize = 1_000;
/// Records that one listing reads at most.
const READ_MAX: usize = 10_000;
/// Longest reason, in characters.
pub(crate) const REASON_MAX: usize = 500;

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Action {
    ForceRelease,
    SetLimit,
    RemoveRecord,
    Requeue,
}

/// Where an entry is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kept {
    Store,
    /// The store keeps no records: the entry ends with the service.
    Memory,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AuditEntry")]
pub(crate) struct Entry {
    pub(crate) id: String,
    pub(crate) at_ms: u64,
    pub(crate) action: Action,
    pub(crate) name: String,
    pub(crate) fence: Option<Fence64>,
    /// The name of the token.
    pub(crate) by: String,
    /// The address of the caller.
    pub(crate) from: String,
    pub(crate) reason: Option<String>,
    /// `requested` until the outcome is known.
    pub(crate) outcome: String,
    pub(crate) kept: Kept,
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
        let at_ms = self.wall_ms();
        let Act { action, name, fence, by, from, reason } = act;
        let (name, by, fence) = (name.to_owned(), by.to_owned(), fence.map(Fence64));
        let id = format!("{at_ms:014}-{}", &secret()?[..12]);
        let (outcome_known, kept) = ("requested".to_owned(), Kept::Store);
        let mut entry =
            Entry { id, at_ms, action, name, fence, by, from, reason, outcome: outcome_known, kept };
        match self.write(&entry.id, &entry).await {
            Err(error) if error.kind() == ErrorKind::Unsupported => entry.kept = Kept::Memory,
            written => written?,
        }
        tracing::warn!(id = %entry.id, ?action, name = %entry.name, by = %entry.by, from = %entry.from, "audit");
        self.audit.remember(&entry);
        let done = work.await;
        entry.outcome = match &done {
            Ok(done) => outcome(done),
            Err(problem) => format!("failed: {}", problem.detail()),
        };
        if entry.kept == Kept::Store
            && let Err(error) = self.write(&format!("{}-outcome", entry.id), &entry).await
        {
            tracing::error!(id = %entry.id, outcome = %entry.outcome, %error, "the outcome is not in the audit");
        }
        self.audit.remember(&entry);
        self.events.publish(Topic::Audit, "audit", &entry);
        done
    }

    async fn write(&self, key: &str, entry: &Entry) -> leasehold::Result<()> {
        let key = self.leases.idempotency(OPERATION).key(key).keep_result_for(KEPT_FOR);
        if let Begun::Yours(execution) = key.begin::<Entry>().await? {
            execution.complete(entry).await?;
        }
        Ok(())
    }

    /// The entries, newest first; those of the store if it keeps any.
    pub(crate) async fn audit_entries(&self) -> Result<Vec<Entry>> {
        let mut entries: BTreeMap<String, Entry> =
            self.audit.recent().iter().map(|entry| (entry.id.clone(), entry.clone())).collect();
        let prefix = format!("idempotency:{OPERATION}:");
        let (mut from, mut read) = (None, 0);
        while read < READ_MAX {
            let page = match self.leases.records_page(&prefix, from, 500).await {
                Err(error) if error.kind() == ErrorKind::Unsupported => break,
                page => page?,
            };
            read += page.items.len();
            for record in &page.items {
                let Content::Stored(stored) = &record.content else { continue };
                let RecordState::Completed(text) = &stored.state else { continue };
                let Ok(entry) = serde_json::from_slice::<Entry>(text) else { continue };
                let known = entries.entry(entry.id.clone()).or_insert_with(|| entry.clone());
                // The outcome is a record of its own.
                if known.outcome == "requested" {
                    *known = entry;
                }
            }
            from = page.next;
            if from.is_none() {
                break;
            }
        }
        Ok(entries.into_values().rev().collect())
    }

    /// The entries about one name that this service remembers, newest first.
    pub(crate) fn audit_of(&self, name: &str, most: usize) -> Vec<Entry> {
        let recent = self.audit.recent();
        recent.iter().rev().filter(|entry| entry.name == name).take(most).cloned().collect()
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
