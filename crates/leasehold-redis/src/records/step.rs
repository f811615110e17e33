//! What is sent about one record: the keys and arguments of `scripts/records/`.

use std::io::Write;

use redis::{Cmd, RedisWrite};

use super::super::{
    keys::Keys,
    script::{TOMBSTONE, px},
};
use leasehold_core::engine::{
    Hold,
    records::{Begin, Settle},
};

/// One step of a record.
pub(crate) enum Step {
    Begin(Begin),
    Settle {
        settle: Settle,
        /// Some copy of the request to begin may still reach the server.
        unanswered: bool,
    },
    Renew(Hold),
    Remove,
    Look,
}

impl Step {
    /// Whether somebody is to be woken for it.
    pub(crate) fn watches(&self) -> bool {
        matches!(self, Self::Begin(begin) if begin.wake)
    }

    pub(crate) fn write_keys(&self, keys: &Keys, cmd: &mut Cmd) {
        cmd.arg(keys.lock());
        if let Self::Begin(_) | Self::Settle { .. } = self {
            cmd.arg(keys.begun());
        }
        if !matches!(self, Self::Renew(_) | Self::Look) {
            cmd.arg(keys.watchers());
        }
        if let Self::Begin(Begin { owner, .. })
        | Self::Settle { settle: Settle { hold: Hold { owner, .. }, .. }, unanswered: true } = self
        {
            cmd.arg(keys.gone(owner.id_text()));
        }
    }

    /// `channel` is where a watcher is woken.
    pub(crate) fn write_arguments(&self, cmd: &mut Cmd, channel: &str) {
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
            Self::Settle { settle, unanswered } => {
                cmd.arg(if *unanswered { "t" } else { "s" });
                cmd.arg(settle.hold.owner.expose()).arg(settle.hold.fence.get());
                cmd.arg(settle.text().unwrap_or_default()).arg(px(settle.keep));
                if *unanswered {
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
