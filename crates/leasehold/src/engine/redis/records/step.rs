//! What is sent about one record: the keys and arguments of `scripts/records/`.

use std::{io::Write, time::Duration};

use redis::{Cmd, RedisWrite};

use super::super::{
    keys::Keys,
    script::{TOMBSTONE, px},
};
use crate::{
    engine::{
        Hold,
        records::{Begin, Outcome, Settle, State, Stored},
    },
    owner::Owner,
};

/// One step of a record.
pub(in super::super) enum Step {
    Begin(Begin),
    Settle {
        ending: Ending,
        form: Form,
    },
    Renew {
        hold: Hold,
        /// By the record's own key.
        alone: bool,
    },
    Remove,
    Look,
}

/// How a settlement is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Form {
    /// At once or not at all.
    Whole,
    /// By the record's own key, while its keys are on two nodes.
    Alone,
    /// When all keys are on one node again.
    Patient,
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

    fn owner(&self) -> &Owner {
        &self.hold.owner
    }
}

impl Step {
    /// Whether somebody is to be woken for it.
    pub(in super::super) fn watches(&self) -> bool {
        matches!(self, Self::Begin(begin) if begin.wake)
    }

    /// Whether it can wait until all keys of the record are on one node.
    pub(in super::super) fn is_patient(&self) -> bool {
        match self {
            Self::Settle { form, .. } => *form == Form::Patient,
            Self::Renew { .. } => false,
            Self::Begin(_) | Self::Remove | Self::Look => true,
        }
    }

    pub(in super::super) fn key_count(&self) -> usize {
        match self {
            Self::Settle { form: Form::Alone, .. } | Self::Renew { alone: true, .. } | Self::Look => 1,
            Self::Renew { .. } | Self::Remove => 2,
            Self::Settle { ending, .. } => 3 + usize::from(ending.unanswered),
            Self::Begin(_) => 4,
        }
    }

    pub(in super::super) fn write_keys(&self, keys: &Keys, cmd: &mut Cmd) {
        cmd.arg(keys.lock());
        match self {
            Self::Settle { form: Form::Alone, .. } | Self::Renew { alone: true, .. } | Self::Look => {}
            Self::Renew { .. } => {
                cmd.arg(keys.fence());
            }
            Self::Remove => {
                cmd.arg(keys.watchers());
            }
            Self::Settle { ending, .. } => {
                cmd.arg(keys.fence()).arg(keys.watchers());
                if ending.unanswered {
                    cmd.arg(keys.gone(ending.owner().id_text()));
                }
            }
            Self::Begin(begin) => {
                cmd.arg(keys.fence()).arg(keys.watchers()).arg(keys.gone(begin.owner.id_text()));
            }
        }
    }

    /// `channel` is where who watches is woken.
    pub(in super::super) fn write_arguments(&self, cmd: &mut Cmd, channel: &str) {
        match self {
            Self::Begin(begin) => {
                cmd.arg("B").arg(begin.owner.expose()).arg(px(begin.lease));
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
            Self::Settle { ending, form: Form::Alone } => {
                cmd.arg("O").arg(ending.owner().expose()).arg(&ending.text[..]).arg(px(ending.keep));
            }
            Self::Settle { ending, .. } => {
                let (owner, fence) = (ending.owner().expose(), ending.hold.fence.get());
                cmd.arg(if ending.unanswered { "U" } else { "S" }).arg(owner).arg(fence);
                cmd.arg(&ending.text[..]).arg(px(ending.keep));
                if ending.unanswered {
                    cmd.arg(TOMBSTONE.as_millis() as u64);
                }
            }
            Self::Renew { hold, alone } => {
                cmd.arg(if *alone { "V" } else { "W" }).arg(hold.owner.expose()).arg(px(hold.ttl));
            }
            Self::Remove => {
                cmd.arg("X");
            }
            Self::Look => {
                cmd.arg("L");
            }
        }
    }
}
