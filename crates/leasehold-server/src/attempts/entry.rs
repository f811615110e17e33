//! One attempt: waiting, granted, or over.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::{Holder, clock::BootInstant};
use tokio::sync::watch;

use super::Leave;
use crate::token::Granted;

/// The state of a wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    pub(crate) ahead: Option<u32>,
    pub(crate) holder: Option<Holder>,
}

/// How an attempt ended.
#[derive(Clone, Debug)]
pub(crate) enum Ended {
    Granted {
        granted: Granted,
        session: Option<String>,
    },
    /// Its time in the queue was over, or it asked once; this is what it saw.
    Busy {
        progress: Progress,
        retry_after: Duration,
    },
    Failed(leasehold::Error),
    /// What it had was given back, or is lost.
    Over,
}

#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) name: String,
    pub(crate) request: [u8; 32],
    pub(crate) began: BootInstant,
    /// Whether it stays in the queue while no request waits for it.
    pub(crate) is_async: bool,
    pub(crate) leave: Leave,
    progress: Mutex<Progress>,
    presence: Mutex<Presence>,
    ended: watch::Sender<Option<(Ended, BootInstant)>>,
}

/// Who asks for it.
#[derive(Debug)]
struct Presence {
    asking: u32,
    last: BootInstant,
}

impl Attempt {
    pub(crate) fn new(name: &str, request: [u8; 32], is_async: bool, now: BootInstant) -> Self {
        Self {
            name: name.to_owned(),
            request,
            began: now,
            is_async,
            leave: Leave::new(),
            progress: Mutex::default(),
            presence: Mutex::new(Presence { asking: 0, last: now }),
            ended: watch::Sender::new(None),
        }
    }

    pub(crate) fn saw(&self, progress: Progress) {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = progress;
    }

    pub(crate) fn progress(&self) -> Progress {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn presence(&self) -> MutexGuard<'_, Presence> {
        self.presence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request asks for it, for as long as the result lives.
    pub(crate) fn ask(self: &Arc<Self>, now: BootInstant) -> Interest {
        let mut presence = self.presence();
        (presence.asking, presence.last) = (presence.asking + 1, now);
        Interest(self.clone())
    }

    pub(crate) fn end(&self, ended: Ended, now: BootInstant) {
        self.ended.send_replace(Some((ended, now)));
    }

    pub(crate) fn how_ended(&self) -> Option<Ended> {
        self.ended.borrow().as_ref().map(|(ended, _)| ended.clone())
    }

    /// Waits for its end.
    pub(crate) async fn ended(&self) -> Ended {
        let mut changes = self.ended.subscribe();
        let seen = changes.wait_for(Option::is_some).await;
        seen.ok().and_then(|seen| seen.as_ref().map(|(ended, _)| ended.clone())).unwrap_or(Ended::Over)
    }

    pub(super) fn extend(&self, until: BootInstant) {
        self.ended.send_if_modified(|ended| {
            if let Some((Ended::Granted { granted, .. }, _)) = ended {
                granted.valid_until = granted.valid_until.max(until);
            }
            false
        });
    }

    /// Leaves the queue, if it still waits.
    pub(crate) fn leave(&self) {
        if self.ended.borrow().is_none() {
            self.leave.cancel();
        }
    }

    /// Whether it left the queue before its end: then a repeat is a new attempt.
    pub(super) fn was_left(&self) -> bool {
        self.leave.is_cancelled() && !matches!(self.how_ended(), Some(Ended::Granted { .. }))
    }

    pub(super) fn is_remembered(&self, now: BootInstant, beyond: Duration) -> bool {
        match &*self.ended.borrow() {
            None => true,
            Some((Ended::Granted { granted, .. }, _)) => now.since(granted.valid_until) < beyond,
            Some((_, at)) => now.since(*at) < beyond,
        }
    }

    pub(super) fn is_unasked(&self, now: BootInstant, patience: Duration) -> bool {
        let presence = self.presence();
        presence.asking == 0 && now.since(presence.last) >= patience
    }
}

/// A request that asks for an attempt. When the last one is dropped, an attempt that is not asynchronous leaves the queue.
#[derive(Debug)]
pub(crate) struct Interest(Arc<Attempt>);

impl Drop for Interest {
    fn drop(&mut self) {
        let mut presence = self.0.presence();
        presence.asking -= 1;
        let is_last = presence.asking == 0;
        drop(presence);
        if is_last && !self.0.is_async {
            self.0.leave();
        }
    }
}
