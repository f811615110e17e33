//! What is sent about one record: the keys and arguments of `scripts/records/`.

use std::{io::Write, time::Duration};

use redis::{Cmd, RedisWrite};

use super::super::{
    keys::Keys,
    script::{TOMBSTONE, px},
};
use crate::engine::{
    Hold,
    records::{Begin, Outcome, Settle, State, Stored},
};

/// One step of a record.
pub(in super::super) enum Step {
    Begin(Begin),
    Settle(Ending),
    Renew(Hold),
    Remove,
    Look,
}

/// The end of an execution, ready to be sent as often as needed.
#[derive(Clone)]
pub(in super::super) struct Ending {
    hold: Hold,
    /// What is to be stored; empty if nothing is.
    text: bytes::Bytes,
    keep: Duration,
    /// Some copy of the wish to begin may still reach the server.
    unanswered: bool,
}

impl Ending {
    /// `unanswered`: some copy of the wish to begin may still reach the server.
    pub(super) fn of(settle: &Settle, unanswered: bool) -> Self {
        let state = match &settle.outcome {
            Outcome::Completed(result) => Some(State::Completed(result.clone())),
            Outcome::Failed(why) => Some(State::Failed(why.clone())),
            Outcome::Quarantined(why) => Some(State::Quarantined(why.clone())),
            Outcome::Retry => None,
        };
        let (hold, fingerprint) = (settle.hold.clone(), settle.fingerprint.clone());
        let text = state.map(|state| Stored { state, fence: hold.fence, fingerprint }.write());
        Self { text: text.unwrap_or_default().into(), keep: settle.keep, unanswered, hold }
    }
}

impl Step {
    /// Whether somebody is to be woken for it.
    pub(in super::super) fn watches(&self) -> bool {
        matches!(self, Self::Begin(begin) if begin.wake)
    }

    pub(in super::super) fn write_keys(&self, keys: &Keys, cmd: &mut Cmd) {
        cmd.arg(keys.lock());
        match self {
            Self::Renew(_) | Self::Look => {}
            Self::Remove => {
                cmd.arg(keys.watchers());
            }
            Self::Settle(ending) => {
                cmd.arg(keys.begun()).arg(keys.watchers());
                if ending.unanswered {
                    cmd.arg(keys.gone(ending.hold.owner.id_text()));
                }
            }
            Self::Begin(begin) => {
                cmd.arg(keys.begun()).arg(keys.watchers()).arg(keys.gone(begin.owner.id_text()));
            }
        }
    }

    /// `channel` is where who watches is woken.
    pub(in super::super) fn write_arguments(&self, cmd: &mut Cmd, channel: &str) {
        match self {
            Self::Begin(begin) => {
                cmd.arg("b").arg(begin.owner.expose()).arg(px(begin.lease));
                match &begin.fingerprint {
                    Some(fingerprint) => cmd.arg(fingerprint.to_string()),
                    None => cmd.arg("-"),
                };
                let mut watcher = cmd.writer_for_next_arg();
                if begin.wake {
                    let id = begin.owner.id_text();
                    write!(watcher, "{channel} {id}").expect("a command takes what is written");
                }
            }
            Self::Settle(ending) => {
                let (owner, fence) = (ending.hold.owner.expose(), ending.hold.fence.get());
                cmd.arg(if ending.unanswered { "t" } else { "s" }).arg(owner).arg(fence);
                cmd.arg(&ending.text[..]).arg(px(ending.keep));
                if ending.unanswered {
                    cmd.arg(TOMBSTONE.as_millis() as u64);
                }
            }
            Self::Renew(hold) => {
                cmd.arg("r").arg(hold.owner.expose()).arg(px(hold.ttl));
            }
            Self::Remove => {
                cmd.arg("x");
            }
            Self::Look => {
                cmd.arg("l");
            }
        }
    }
}
