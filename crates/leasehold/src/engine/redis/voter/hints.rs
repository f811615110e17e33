//! Wake-ups of a voter are hints: they grant nothing, and who gets one tries at once.

use std::sync::{OnceLock, Weak};

use super::super::node::Listener;
use crate::{
    engine::{LinkChange, Wake, WakeSink},
    owner::OwnerId,
};

/// Passes hints on.
pub(super) struct Hints {
    /// How people call the node.
    label: String,
    sink: OnceLock<Weak<dyn WakeSink>>,
}

impl Hints {
    pub(super) fn new(label: &str) -> Self {
        Self { label: label.into(), sink: OnceLock::new() }
    }

    pub(super) fn set_sink(&self, sink: Weak<dyn WakeSink>) {
        let _first = self.sink.set(sink);
    }

    fn tell(&self, tell: impl FnOnce(&dyn WakeSink)) {
        if let Some(sink) = self.sink.get().and_then(Weak::upgrade) {
            tell(&*sink);
        }
    }
}

impl Listener for Hints {
    fn message(&self, _: u64, payload: &[u8]) {
        if let Some(owner) = parse(payload) {
            self.tell(|sink| sink.wake(Wake::LookAgain { owner }));
        }
    }

    fn connected(&self) {
        self.tell(|sink| sink.link(LinkChange::Connected));
    }

    fn disconnected(&self, why: &str) {
        self.tell(|sink| {
            sink.link(LinkChange::Disconnected { why: format!("{}: {why}", self.label) });
            sink.wake(Wake::LookAgainAll);
        });
    }
}

/// A message is the random part of the owner value, and the word "hint".
fn parse(payload: &[u8]) -> Option<OwnerId> {
    OwnerId::parse(std::str::from_utf8(payload).ok()?.strip_suffix(" hint")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_on_the_channel_is_ignored() {
        assert!(parse(b"00000000000000000000000000000007 hint").is_some());
        for noise in [&b""[..], b" hint", b"\xff hint", b"07 hint", b"00000000000000000000000000000007 9"] {
            assert!(parse(noise).is_none());
        }
    }
}
