//! What statuses mean, and how requests and replies of transactions are put together and taken apart.

use std::error::Error as _;

use leasehold_core::{
    engine::{EngineError, Fault},
    error::Refusal,
};
use tonic::{Code, ConnectError, Status};

use super::proto::{
    Answered, Compare, CompareResult, CompareTarget, DeleteRangeRequest, KeyValue, Op, Operand, PutRequest,
    RangeRequest, RangeResponse, RequestOp, SortOrder, SortTarget, TxnResponse,
};

/// A lease that is over, or never was.
pub(crate) const NO_LEASE: &str = "requested lease not found";

/// What a status says about a call.
pub(crate) enum Meaning {
    /// The connection failed; another one may do. Whether the call was sent.
    Broken { was_sent: bool },
    /// This member cannot serve it now; another one may.
    Elsewhere,
    /// The token is over: log in again.
    LoginOver,
    /// An answer.
    Answer,
}

pub(crate) fn meaning(status: &Status) -> Meaning {
    let text = status.message();
    if text.starts_with("etcdserver: ") || text.starts_with("auth: ") {
        return match status.code() {
            Code::Unauthenticated if text.contains("invalid auth token") => Meaning::LoginOver,
            Code::InvalidArgument if text.contains("auth store is old") => Meaning::LoginOver,
            Code::Unavailable => Meaning::Elsewhere,
            _ => Meaning::Answer,
        };
    }
    let mut source = status.source();
    while let Some(cause) = source {
        if cause.is::<ConnectError>() {
            return Meaning::Broken { was_sent: false };
        }
        source = cause.source();
    }
    match status.code() {
        Code::Unavailable | Code::Unknown | Code::Cancelled | Code::Internal | Code::DeadlineExceeded => {
            Meaning::Broken { was_sent: true }
        }
        _ => Meaning::Answer,
    }
}

/// The failure of a call. `was_sent` is false if no member can have seen it.
pub(crate) fn failure(status: &Status, was_sent: bool) -> EngineError {
    let text = status.message();
    let refused = |refusal| EngineError::new(Fault::Refused(refusal), text);
    if !was_sent {
        let why = with_causes(status);
        let is_certificate = why.contains("certificate");
        let fault = if is_certificate { Fault::Refused(Refusal::Certificate) } else { Fault::Unreachable };
        return EngineError::new(fault, why);
    }
    match status.code() {
        Code::PermissionDenied => refused(Refusal::Acl),
        Code::Unauthenticated => refused(Refusal::Auth),
        Code::InvalidArgument if text.contains("authentication failed") => refused(Refusal::Auth),
        Code::ResourceExhausted if text.contains("database space exceeded") => refused(Refusal::OutOfMemory),
        Code::ResourceExhausted => EngineError::new(Fault::Overloaded, text),
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown | Code::Internal => {
            EngineError::new(Fault::NoAnswer, with_causes(status))
        }
        _ => refused(Refusal::Other),
    }
}

/// Whether a call failed because a lease is over.
pub(crate) fn is_no_lease(error: &EngineError) -> bool {
    error.why.contains(NO_LEASE)
}

fn with_causes(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut source = status.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    if text.is_empty() { "the connection broke".into() } else { text }
}

/// Keys from `start` to `end`, in the order of creation.
pub(crate) fn range((start, end): (Vec<u8>, Vec<u8>), limit: i64) -> RangeRequest {
    let (sort_order, sort_target) = (SortOrder::Ascend as i32, SortTarget::Create as i32);
    RangeRequest { key: start, range_end: end, limit, sort_order, sort_target, ..RangeRequest::default() }
}

/// One key.
pub(crate) fn get(key: Vec<u8>) -> RangeRequest {
    RangeRequest { key, ..RangeRequest::default() }
}

pub(crate) fn op(op: Op) -> RequestOp {
    RequestOp { op: Some(op) }
}

pub(crate) fn read(range: RangeRequest) -> RequestOp {
    op(Op::Range(range))
}

pub(crate) fn put(key: Vec<u8>, value: Vec<u8>, lease: i64) -> RequestOp {
    op(Op::Put(PutRequest { key, value, lease }))
}

pub(crate) fn delete(key: Vec<u8>) -> RequestOp {
    op(Op::Delete(DeleteRangeRequest { key, range_end: Vec::new() }))
}

/// That a key is there in this creation; 0 is that it is not there.
pub(crate) fn created(key: Vec<u8>, revision: i64) -> Compare {
    compare((key, Vec::new()), CompareTarget::Create, CompareResult::Equal, Operand::Create(revision))
}

/// That a key was last written by this revision.
pub(crate) fn written(key: Vec<u8>, revision: i64) -> Compare {
    compare((key, Vec::new()), CompareTarget::Mod, CompareResult::Equal, Operand::Mod(revision))
}

/// That a key is there.
pub(crate) fn exists(key: Vec<u8>) -> Compare {
    compare((key, Vec::new()), CompareTarget::Create, CompareResult::Greater, Operand::Create(0))
}

/// That a key has this value.
pub(crate) fn holds(key: Vec<u8>, value: Vec<u8>) -> Compare {
    compare((key, Vec::new()), CompareTarget::Value, CompareResult::Equal, Operand::Value(value))
}

/// That nothing of a range was written after this revision; 0 is that it is empty.
pub(crate) fn unchanged(range: (Vec<u8>, Vec<u8>), since: i64) -> Compare {
    compare(range, CompareTarget::Mod, CompareResult::Less, Operand::Mod(since + 1))
}

fn compare(
    (key, range_end): (Vec<u8>, Vec<u8>),
    target: CompareTarget,
    result: CompareResult,
    operand: Operand,
) -> Compare {
    Compare { result: result as i32, target: target as i32, key, operand: Some(operand), range_end }
}

/// The replies of a transaction, one after the other.
pub(crate) struct Replies {
    pub(crate) succeeded: bool,
    /// The revision of the store at which it ran.
    pub(crate) revision: i64,
    replies: std::vec::IntoIter<super::proto::ResponseOp>,
}

impl From<TxnResponse> for Replies {
    fn from(response: TxnResponse) -> Self {
        let revision = response.header.map_or(0, |header| header.revision);
        Self { succeeded: response.succeeded, revision, replies: response.responses.into_iter() }
    }
}

impl Replies {
    fn next(&mut self) -> Option<Answered> {
        self.replies.next().and_then(|reply| reply.answered)
    }

    /// The next one, of a read.
    pub(crate) fn range(&mut self) -> Result<RangeResponse, EngineError> {
        loop {
            match self.next() {
                Some(Answered::Range(range)) => return Ok(range),
                Some(_) => {}
                None => return Err(EngineError::new(Fault::NoAnswer, "the member's answer is incomplete")),
            }
        }
    }

    /// The next one, of a read of one key.
    pub(crate) fn key(&mut self) -> Result<Option<KeyValue>, EngineError> {
        Ok(self.range()?.kvs.pop())
    }

    /// Whether the next one, a transaction inside, did what its condition is for, at once or in a second way.
    pub(crate) fn mark(&mut self) -> Result<bool, EngineError> {
        match self.next() {
            Some(Answered::Txn(TxnResponse { succeeded: true, .. })) => Ok(true),
            Some(Answered::Txn(outer)) => Ok(Replies::from(outer)
                .next()
                .is_some_and(|second| matches!(second, Answered::Txn(TxnResponse { succeeded: true, .. })))),
            _ => Err(EngineError::new(Fault::NoAnswer, "the member's answer is incomplete")),
        }
    }
}
