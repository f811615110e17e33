//! Attempts that wait, and what a message means for them.

use std::sync::{
    Arc, OnceLock, Weak,
    atomic::{AtomicU64, Ordering},
};

use super::node::Listener;
use crate::{
    clock::BootInstant,
    engine::{
        Acks, Claim, EngineError, LinkChange, Wake, WakeSink,
        registry::{self, Registry},
    },
    fence::Fence,
    owner::OwnerId,
};

/// The attempts of one client that may be queued.
#[derive(Default)]
pub(super) struct Attempts {
    registry: Arc<Registry<WaitingAttempt>>,
    sink: OnceLock<Weak<dyn WakeSink>>,
    /// How often its client has asked, of attempts or otherwise.
    round_trips: AtomicU64,
}

/// A claim whose caller waits for the answer.
pub(super) type Call = registry::Call<WaitingAttempt>;

#[derive(Clone, Default)]
pub(super) struct WaitingAttempt {
    /// When it came, as the server told; resends keep the place by it.
    arrival: Option<String>,
    /// A grant counts only once replicas have it, so a message is no more than a hint.
    waits_for_replicas: bool,
    /// It was told that the lock is its own.
    called: bool,
}

/// Copies of a claim are not yet told apart by connection.
const ANY_CONNECTION: u64 = 1;

impl Attempts {
    pub(super) fn round_trips(&self) -> u64 {
        self.round_trips.load(Ordering::Relaxed)
    }

    pub(super) fn set_sink(&self, sink: Weak<dyn WakeSink>) {
        let _first = self.sink.set(sink);
    }

    fn tell(&self, wake: Wake) {
        if let Some(sink) = self.sink.get().and_then(Weak::upgrade) {
            sink.wake(wake);
        }
    }

    fn tell_link(&self, change: LinkChange) {
        if let Some(sink) = self.sink.get().and_then(Weak::upgrade) {
            sink.link(change);
        }
    }

    /// A copy of a claim is about to leave. Counted first: an end that comes later knows of it, one that came before is
    /// seen here.
    pub(super) fn leaves(&self, owner: OwnerId, now: BootInstant) -> Result<Arc<Call>, EngineError> {
        let call = self.registry.enter(owner, now)?;
        call.leaves(None)?;
        call.left(ANY_CONNECTION);
        Ok(Arc::new(call))
    }

    /// The server answered it.
    pub(super) fn answered(&self, call: &Call) {
        call.answered(ANY_CONNECTION);
    }

    /// The attempt ends: no copy of a claim leaves from here on. Answers whether one may arrive later.
    pub(super) fn end(&self, owner: OwnerId) -> bool {
        self.registry.end(owner);
        self.leave(owner);
        self.may_come_late(owner)
    }

    /// Whether a copy of a claim, or of a wish to begin a record, is unanswered.
    pub(super) fn may_come_late(&self, owner: OwnerId) -> bool {
        self.registry.remains(owner, u64::MAX).may_come_late
    }

    /// The server has answered the end.
    pub(super) fn ended(&self, owner: OwnerId) {
        self.registry.ended(owner);
    }

    /// Notes that an attempt may queue, before its claim leaves; answers the arrival it was told before.
    pub(super) fn enter(&self, claim: &Claim, now: BootInstant) -> Result<Option<String>, EngineError> {
        let _entered = self.registry.enter(claim.owner.id(), now)?;
        Ok(self.registry.waits(claim.owner.id(), |waits| {
            let waits_for_replicas = claim.acks != Acks::None;
            waits
                .get_or_insert_with(|| WaitingAttempt { waits_for_replicas, ..Default::default() })
                .arrival
                .clone()
        }))
    }

    /// Whether a claim of this attempt that may queue has left before.
    pub(super) fn knows(&self, owner: OwnerId) -> bool {
        self.registry.waits(owner, |waits| waits.is_some())
    }

    /// The server said "queued".
    pub(super) fn queued(&self, owner: OwnerId, arrival: String) {
        self.registry.waits(owner, |waits| {
            if let Some(waits) = waits {
                (waits.arrival, waits.called) = (Some(arrival), false);
            }
        });
    }

    /// The server said that the lock is this attempt's, which still has to wait for replicas.
    pub(super) fn call(&self, owner: OwnerId) {
        self.registry.waits(owner, |waits| waits.iter_mut().for_each(|waits| waits.called = true));
    }

    /// Whether the attempt was told that the lock is its own.
    pub(super) fn was_called(&self, owner: OwnerId) -> bool {
        self.registry.waits(owner, |waits| waits.as_ref().is_some_and(|waits| waits.called))
    }

    /// The attempt waits no longer.
    pub(super) fn leave(&self, owner: OwnerId) {
        self.registry.waits(owner, |waits| *waits = None);
    }

    /// Its claim failed without effect. One that was queued before still is, and is ended by its client.
    pub(super) fn leave_unless_queued(&self, owner: OwnerId) {
        self.registry.waits(owner, |waits| {
            waits.take_if(|waits| waits.arrival.is_none());
        });
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.registry.len()
    }
}

impl Listener for Attempts {
    fn asked(&self) {
        self.round_trips.fetch_add(1, Ordering::Relaxed);
    }

    fn message(&self, connection: u64, payload: &[u8]) {
        if let Some(owners) = payload.strip_prefix(LOOK) {
            return watchers(owners).for_each(|owner| self.tell(Wake::LookAgain { owner }));
        }
        let Some((owner, fence)) = parse(payload) else { return };
        let waits_for_replicas = self.registry.waits(owner, |waits| match waits {
            Some(waits) if waits.waits_for_replicas => {
                waits.called = true;
                true
            }
            _ => false,
        });
        // Who released it waited for no replica: claiming again does.
        let wake = if waits_for_replicas {
            Wake::LookAgain { owner }
        } else {
            Wake::Granted { owner, fence, link: connection }
        };
        self.tell(wake);
    }

    fn connected(&self) {
        self.tell_link(LinkChange::Connected);
    }

    fn disconnected(&self, why: &str) {
        self.tell_link(LinkChange::Disconnected { why: why.into() });
        self.tell(Wake::LookAgainAll);
    }
}

/// How a message to those who watch a record begins; their random parts follow.
const LOOK: &[u8] = b"look ";

/// Whom such a message is for.
fn watchers(owners: &[u8]) -> impl Iterator<Item = OwnerId> {
    owners.split(|byte| *byte == b' ').filter_map(|owner| OwnerId::parse(std::str::from_utf8(owner).ok()?))
}

/// A message is "random part of the owner value, fence".
fn parse(payload: &[u8]) -> Option<(OwnerId, Fence)> {
    let (owner, fence) = std::str::from_utf8(payload).ok()?.split_once(' ')?;
    Some((OwnerId::parse(owner)?, fence.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::{sync::Mutex, time::Duration};

    use super::*;
    use crate::{
        engine::{Mode, Queue},
        name::Name,
        owner::{Holder, Owner},
    };

    #[derive(Default)]
    struct Heard(Mutex<Vec<Wake>>);
    impl WakeSink for Heard {
        fn wake(&self, wake: Wake) {
            self.0.lock().unwrap().push(wake);
        }
        fn link(&self, _: LinkChange) {}
    }

    fn claim(acks: Acks) -> Claim {
        Claim {
            name: Name::new("x").unwrap(),
            owner: Owner::new(7, &Holder::Foreign),
            mode: Mode::Exclusive,
            ttl: Duration::from_secs(1),
            lock_delay: Duration::ZERO,
            queue: Some(Queue { wait: Duration::from_secs(9), poll_every: Duration::from_millis(300) }),
            acks,
        }
    }

    fn hear(acks: Acks) -> Wake {
        let heard = Arc::new(Heard::default());
        let sink: Arc<dyn WakeSink> = heard.clone();
        let (attempts, claim) = (Attempts::default(), claim(acks));
        attempts.set_sink(Arc::downgrade(&sink));
        attempts.enter(&claim, BootInstant::from_nanos(0)).unwrap();
        attempts.queued(claim.owner.id(), "1".into());
        attempts.message(3, format!("{} 11", claim.owner.id_text()).as_bytes());
        assert_eq!(attempts.was_called(claim.owner.id()), acks != Acks::None);
        heard.0.lock().unwrap().pop().unwrap()
    }

    #[test]
    fn a_handover_names_its_fence_and_the_connection_it_came_over() {
        let wake = hear(Acks::None);
        assert!(matches!(wake, Wake::Granted { fence, link: 3, .. } if fence.get() == 11), "{wake:?}");
    }

    #[test]
    fn a_message_to_an_attempt_that_waits_for_replicas_is_only_a_hint() {
        assert!(matches!(hear(Acks::AtLeast(1)), Wake::LookAgain { .. }));
    }

    #[test]
    fn those_who_watch_a_record_are_told_to_look_again() {
        let heard = Arc::new(Heard::default());
        let sink: Arc<dyn WakeSink> = heard.clone();
        let attempts = Attempts::default();
        attempts.set_sink(Arc::downgrade(&sink));
        let [one, other] = [1, 2].map(|random| Owner::new(random, &Holder::Foreign));
        let text = format!("look {} noise {}", one.id_text(), other.id_text());
        // What an older client takes for no message.
        assert!(parse(text.as_bytes()).is_none());
        attempts.message(1, text.as_bytes());
        let told: Vec<_> = heard.0.lock().unwrap().drain(..).collect();
        let look = |wake: &Wake, of: &Owner| matches!(wake, Wake::LookAgain { owner } if *owner == of.id());
        assert!(matches!(&told[..], [a, b] if look(a, &one) && look(b, &other)), "{told:?}");
    }

    #[test]
    fn noise_on_the_channel_is_ignored() {
        for noise in [&b""[..], b"x", b"\xff\xff", b"0123 1", b"00000000000000000000000000000007 -1"] {
            assert!(parse(noise).is_none());
        }
    }
}
