//! Attempts that wait, and what a hand-over message means for them.

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::connection::Listener;
use crate::{
    clock::BootInstant,
    engine::{Acks, Claim, Grant, LinkChange, Wake, WakeSink},
    fence::Fence,
    owner::OwnerId,
};

/// The attempts of one client that may be queued.
#[derive(Default)]
pub(super) struct Attempts {
    waiting: Mutex<HashMap<OwnerId, Place>>,
    sink: OnceLock<Weak<dyn WakeSink>>,
    /// How often its client has asked, of attempts or otherwise.
    round_trips: AtomicU64,
}

struct Place {
    ttl: Duration,
    /// When it came, as the server told; resends keep the place by it.
    arrival: Option<String>,
    /// The last fence before its turn, and a time before which its lease cannot have begun.
    bound: Option<Bound>,
    /// A grant counts only once replicas have it, so a message is no more than a hint.
    waits_for_replicas: bool,
    /// It was told that the lock is its own.
    called: bool,
}

/// A lease handed over under a fence above `last` cannot have begun before `asked_at`: then the server still said
/// "queued", and its last fence was `last`. It holds only for messages of the same connection, thus of the same run of
/// the server.
struct Bound {
    connection: u64,
    last: u64,
    asked_at: BootInstant,
}

impl Attempts {
    pub(super) fn round_trips(&self) -> u64 {
        self.round_trips.load(Ordering::Relaxed)
    }

    pub(super) fn wake_into(&self, sink: Weak<dyn WakeSink>) {
        let _first = self.sink.set(sink);
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<OwnerId, Place>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Notes an attempt before its claim leaves; answers the arrival it was told before.
    pub(super) fn enter(&self, claim: &Claim) -> Option<String> {
        let mut waiting = self.waiting();
        let place = waiting.entry(claim.owner.id()).or_insert(Place {
            ttl: claim.ttl,
            arrival: None,
            bound: None,
            waits_for_replicas: claim.acks != Acks::None,
            called: false,
        });
        place.arrival.clone()
    }

    /// Whether a claim of this attempt that may queue has left before.
    pub(super) fn knows(&self, owner: OwnerId) -> bool {
        self.waiting().contains_key(&owner)
    }

    /// The server said "queued".
    pub(super) fn queued(
        &self,
        owner: OwnerId,
        arrival: String,
        last: u64,
        asked_at: BootInstant,
        connection: u64,
    ) {
        if let Some(place) = self.waiting().get_mut(&owner) {
            place.arrival = Some(arrival);
            place.bound = Some(Bound { connection, last, asked_at });
            place.called = false;
        }
    }

    /// The server said that the lock is this attempt's, which still has to wait for replicas.
    pub(super) fn call(&self, owner: OwnerId) {
        if let Some(place) = self.waiting().get_mut(&owner) {
            place.called = true;
        }
    }

    /// Whether the attempt was told that the lock is its own.
    pub(super) fn was_called(&self, owner: OwnerId) -> bool {
        self.waiting().get(&owner).is_some_and(|place| place.called)
    }

    /// The attempt waits no longer.
    pub(super) fn leave(&self, owner: OwnerId) {
        self.waiting().remove(&owner);
    }

    /// Its claim failed without effect. One that was queued before still is, and is ended by its client.
    pub(super) fn leave_unless_queued(&self, owner: OwnerId) {
        let mut waiting = self.waiting();
        if waiting.get(&owner).is_some_and(|place| place.arrival.is_none()) {
            waiting.remove(&owner);
        }
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.waiting().len()
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
        let wake = match self.waiting().get_mut(&owner) {
            // Who released it waited for no replica: claiming again does.
            Some(place) if place.waits_for_replicas => {
                place.called = true;
                Wake::LookAgain { owner }
            }
            Some(Place { ttl, bound: Some(bound), .. })
                if bound.connection == connection && fence.get() > bound.last =>
            {
                Wake::Granted { owner, grant: Grant { fence, since: bound.asked_at, ttl: *ttl, acks: 0 } }
            }
            // Its start is not known: asking again refreshes the lease and tells.
            Some(_) => Wake::LookAgain { owner },
            // An attempt that has ended: the client ends it again, so that the lock moves on.
            None => {
                let since = BootInstant::from_nanos(0);
                Wake::Granted { owner, grant: Grant { fence, since, ttl: Duration::ZERO, acks: 0 } }
            }
        };
        self.tell(wake);
    }

    fn connected(&self) {
        self.tell_link(LinkChange::Connected);
    }

    fn disconnected(&self, _: u64, why: &str) {
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
    use super::*;
    use crate::{
        name::Name,
        owner::{Holder, Owner},
    };
    use std::sync::Arc;

    #[derive(Default)]
    struct Heard(Mutex<Vec<Wake>>);
    impl WakeSink for Heard {
        fn wake(&self, wake: Wake) {
            self.0.lock().unwrap().push(wake);
        }
        fn link(&self, _: LinkChange) {}
    }

    fn claim() -> Claim {
        Claim {
            name: Name::new("x").unwrap(),
            owner: Owner::new(7, &Holder::Foreign),
            ttl: Duration::from_secs(1),
            lock_delay: Duration::ZERO,
            queue_for: Some(Duration::from_secs(9)),
            poll_every: Duration::from_millis(300),
            acks: Acks::None,
        }
    }

    fn hear(before: impl FnOnce(&Attempts, &Claim), connection: u64, fence: u64) -> Wake {
        let heard = Arc::new(Heard::default());
        let sink: Arc<dyn WakeSink> = heard.clone();
        let (attempts, claim) = (Attempts::default(), claim());
        attempts.wake_into(Arc::downgrade(&sink));
        before(&attempts, &claim);
        attempts.message(connection, format!("{} {fence}", claim.owner.id_text()).as_bytes());
        heard.0.lock().unwrap().pop().unwrap()
    }

    const ASKED: BootInstant = BootInstant::from_nanos(5_000);

    fn queue(attempts: &Attempts, claim: &Claim) {
        attempts.enter(claim);
        attempts.queued(claim.owner.id(), "1".into(), 10, ASKED, 1);
    }

    #[test]
    fn a_handover_begins_when_the_attempt_last_asked() {
        let Wake::Granted { grant, .. } = hear(queue, 1, 11) else { panic!("not granted") };
        assert_eq!((grant.since, grant.fence.get()), (ASKED, 11));
    }

    #[test]
    fn a_message_of_an_earlier_connection_or_fence_is_only_a_hint() {
        assert!(matches!(hear(queue, 2, 11), Wake::LookAgain { .. }));
        assert!(matches!(hear(queue, 1, 10), Wake::LookAgain { .. }));
        let entered = |attempts: &Attempts, claim: &Claim| drop(attempts.enter(claim));
        assert!(matches!(hear(entered, 1, 11), Wake::LookAgain { .. }));
    }

    #[test]
    fn a_message_to_an_attempt_that_waits_for_replicas_is_only_a_hint() {
        let queue_for_acks = |attempts: &Attempts, claim: &Claim| {
            queue(attempts, &Claim { acks: Acks::AtLeast(1), ..claim.clone() });
            assert!(!attempts.was_called(claim.owner.id()));
        };
        assert!(matches!(hear(queue_for_acks, 1, 11), Wake::LookAgain { .. }));
    }

    #[test]
    fn a_message_for_an_ended_attempt_grants_nothing() {
        let left = |attempts: &Attempts, claim: &Claim| {
            queue(attempts, claim);
            attempts.leave(claim.owner.id());
        };
        let Wake::Granted { grant, .. } = hear(left, 1, 11) else { panic!("ignored") };
        assert_eq!((grant.since.as_nanos(), grant.ttl), (0, Duration::ZERO));
    }

    #[test]
    fn those_who_watch_a_record_are_told_to_look_again() {
        let heard = Arc::new(Heard::default());
        let sink: Arc<dyn WakeSink> = heard.clone();
        let attempts = Attempts::default();
        attempts.wake_into(Arc::downgrade(&sink));
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
