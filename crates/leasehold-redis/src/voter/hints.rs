//! Wake-ups of a voter are hints: they grant nothing, and the attempt that gets one tries at once.

use std::sync::Weak;

use super::{super::connection::Listener, RedisVoter};
use leasehold_core::{
    engine::{LinkChange, Wake, WakeSink},
    owner::OwnerId,
};

impl RedisVoter {
    fn tell(&self, tell: impl FnOnce(&dyn WakeSink)) {
        if let Some(sink) = self.sink.get().and_then(Weak::upgrade) {
            tell(&*sink);
        }
    }
}

impl Listener for RedisVoter {
    fn message(&self, _: u64, payload: &[u8]) {
        if let Some(owner) = parse(payload) {
            self.tell(|sink| sink.wake(Wake::LookAgain { owner }));
        }
    }

    fn connected(&self) {
        self.tell(|sink| sink.link(LinkChange::Connected));
    }

    fn disconnected(&self, _: u64, why: &str) {
        if let Some(wake) = self.wake.get() {
            wake.notify_one();
        }
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
