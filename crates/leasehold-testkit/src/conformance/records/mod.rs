//! Records: executions, their outcomes, and plain marks. All through the engine contract.

mod beginning;
mod inspecting;
mod keeping;
mod marks;
mod settling;
mod watching;

use std::time::Duration;

use bytes::Bytes;
use leasehold::{
    Fence, Name,
    engine::{
        Grant,
        records::{
            Begin, Begun, Content, Fingerprint, MarkOp, Outcome, Record, Settle, Settled, State, Stored,
        },
    },
};

use super::{
    Case,
    context::ms,
    engine_client::{EngineClient, owner},
    eventually,
};

pub(super) fn cases() -> Vec<Case> {
    [settling::CASES, watching::CASES, beginning::CASES, keeping::CASES, marks::CASES, inspecting::CASES]
        .concat()
}

impl EngineClient {
    async fn begin(&self, begin: &Begin) -> Begun {
        self.records().begin(begin, self.until()).await.unwrap()
    }

    async fn granted(&self, begin: &Begin) -> Grant {
        match self.begin(begin).await {
            Begun::Yours(grant) => grant,
            other => panic!("not begun: {other:?}"),
        }
    }

    /// Begins an execution; panics if another one exists.
    async fn yours(&self, begin: &Begin) -> Fence {
        self.granted(begin).await.fence
    }

    async fn settle(&self, settle: &Settle) -> Settled {
        self.records().settle(settle, self.until()).await.unwrap()
    }

    async fn complete(&self, begin: &Begin, fence: Fence, result: &'static str) -> Settled {
        self.settle(&end(begin, fence, completed(result))).await
    }

    async fn read(&self, key: &Name) -> Option<Record> {
        self.records().read(key, self.until()).await.unwrap()
    }

    /// The record of this library under a key.
    async fn stored(&self, key: &Name) -> Stored {
        match self.read(key).await.expect("something is there").content {
            Content::Stored(stored) => stored,
            other => panic!("not a record: {other:?}"),
        }
    }

    async fn result(&self, key: &Name) -> Bytes {
        match self.stored(key).await.state {
            State::Completed(result) => result,
            other => panic!("not completed: {other:?}"),
        }
    }

    async fn expires_in(&self, key: &Name) -> Duration {
        self.read(key).await.expect("something is there").expires_in.expect("it ends by itself")
    }

    async fn mark(&self, key: &Name, ttl: Duration, if_absent: bool) -> bool {
        let keys = [key.clone()];
        let op = if if_absent { MarkOp::SetIfAbsent(ttl) } else { MarkOp::Set(ttl) };
        self.records().on_marks(&keys, op, self.until()).await.unwrap() == [true]
    }

    async fn until_gone(&self, key: &Name) {
        eventually("it goes away by itself", async || self.read(key).await.is_none()).await;
    }
}

/// An attempt to begin, with a unique owner and without a fingerprint.
fn attempt(key: &Name) -> Begin {
    Begin { key: key.clone(), owner: owner("attempt"), fingerprint: None, lease: ms(20_000), wake: false }
}

/// The same, with a fingerprint.
fn request(key: &Name, of: &str) -> Begin {
    Begin { fingerprint: Some(Fingerprint::of(of)), ..attempt(key) }
}

/// The same, with a short lease.
fn short(key: &Name) -> Begin {
    Begin { lease: ms(250), ..attempt(key) }
}

fn end(begin: &Begin, fence: Fence, outcome: Outcome) -> Settle {
    Settle { hold: begin.hold(fence), fingerprint: begin.fingerprint.clone(), outcome, keep: ms(60_000) }
}

fn completed(result: &'static str) -> Outcome {
    Outcome::Completed(Bytes::from_static(result.as_bytes()))
}

/// One of each kind.
fn outcomes() -> [Outcome; 4] {
    let bytes = Bytes::from_static(b"a text \0\xff of bytes");
    [
        Outcome::Completed(bytes.clone()),
        Outcome::Failed(bytes.clone()),
        Outcome::Quarantined(bytes),
        Outcome::Retry,
    ]
}

/// What the next attempt gets for a stored outcome.
fn reply_for(outcome: &Outcome) -> Option<Begun> {
    match outcome.clone() {
        Outcome::Completed(bytes) => Some(Begun::Completed(bytes)),
        Outcome::Failed(bytes) => Some(Begun::Failed(bytes)),
        Outcome::Quarantined(bytes) => Some(Begun::Quarantined(bytes)),
        Outcome::Retry => None,
    }
}
