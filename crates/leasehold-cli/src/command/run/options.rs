//! Options of every command that runs another one under a lock.

use std::{ffi::OsString, time::Duration};

use clap::Args;
use leasehold::Acks;

use crate::{duration, waiting::Wait};

/// How to wait for the lock, and how the command is run and stopped.
#[derive(Args)]
pub(crate) struct Options {
    /// How long the lock stays held after a crash [default: 30s]
    #[arg(long, value_name = "DUR", value_parser = duration::parse, allow_hyphen_values = true)]
    pub(crate) ttl: Option<Duration>,

    /// Fail at once if the lock is held
    #[arg(short, long, conflicts_with = "wait")]
    nonblock: bool,

    /// Wait at most this long, in seconds if there is no unit; 0 means do not wait [default: for ever]
    #[arg(short, long, value_name = "DUR", value_parser = duration::parse_wait, allow_hyphen_values = true)]
    wait: Option<Duration>,

    /// Exit code when the lock is not acquired
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = 1)]
    pub(super) conflict_exit_code: u8,

    /// Run this with the shell ($SHELL, or /bin/sh)
    #[arg(short = 'c', long, value_name = "STR")]
    pub(super) shell: Option<OsString>,

    /// Stop the command after this long: TERM, then KILL
    #[arg(long, value_name = "DUR", value_parser = duration::parse, allow_hyphen_values = true)]
    pub(super) max_runtime: Option<Duration>,

    /// Time between TERM and KILL [default: a sixth of the ttl]
    #[arg(long, value_name = "DUR", value_parser = duration::parse, allow_hyphen_values = true)]
    pub(super) kill_after: Option<Duration>,

    /// Description of the holder, shown by inspect [default: the command's file name]
    #[arg(long, value_name = "TEXT")]
    pub(super) label: Option<String>,

    /// Keep the lock unavailable this long after it expires (not after a release)
    #[arg(long, value_name = "DUR", value_parser = duration::parse, allow_hyphen_values = true)]
    pub(crate) lock_delay: Option<Duration>,

    /// Replicas that must acknowledge the lock: a number, or majority
    #[arg(long, value_name = "N")]
    pub(crate) acks: Option<Acks>,
}

impl Options {
    /// How long to wait: a flag wins over the policy.
    pub(crate) fn wait(&self, of_policy: Option<Duration>) -> Wait {
        Wait::from_flags(self.nonblock, self.wait.or(of_policy)).unwrap_or(Wait::Forever)
    }
}
