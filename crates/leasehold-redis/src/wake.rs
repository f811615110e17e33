//! Attempts that wait, and what a message means for them.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{connection::Listener, keys::REDISSON_CHANNEL, locked};
use leasehold_core::{
    clock::BootInstant,
    engine::{
        Acks, Claim, EngineError, LinkChange, LossHint, Wake, WakeSink,
        registry::{self, Registry},
    },
    fence::Fence,
    name::Name,
    owner::OwnerId,
};

/// The attempts of one client that may be queued.
#[derive(Default)]
pub(super) struct Attempts {
    pub(super) registry: Arc<Registry<WaitingAttempt>>,
    /// Its waiters are on many servers: a link that breaks concerns those that wait there.
    by_shard: bool,
    /// What precedes the name of a lock in its key.
    prefix: String,
    sink: OnceLock<Weak<dyn WakeSink>>,
    /// By channel, who waits for a lock in Redisson's format, first come first.
    listeners: Mutex<HashMap<String, Vec<OwnerId>>>,
    /// How often its client has asked, of attempts or otherwise.
    pub(super) round_trips: AtomicU64,
}

/// A claim whose caller waits for the answer.
pub(super) type Call = registry::Call<WaitingAttempt>;

#[derive(Clone, Default)]
pub(super) struct WaitingAttempt {
    /// When it came, by the server's clock; resends keep their place by it.
    arrival: Option<String>,
    /// A grant counts only once replicas have it, so a message is no more than a hint.
    waits_for_replicas: bool,
    /// Over which link it was last answered that it is queued.
    link: Option<u64>,
    /// Where the release of a lock in Redisson's format is announced, if it waits for one.
    channel: Option<String>,
}

/// The number of no link.
pub(super) const NO_LINK: u64 = 0;

impl Attempts {
    pub(super) fn new(by_shard: bool, prefix: &str) -> Arc<Self> {
        Arc::new(Self { by_shard, prefix: prefix.to_owned(), ..Self::default() })
    }

    pub(super) fn set_sink(&self, sink: Weak<dyn WakeSink>) {
        let _first = self.sink.set(sink);
    }

    fn notify(&self, notify: impl FnOnce(&dyn WakeSink)) {
        if let Some(sink) = self.sink.get().and_then(Weak::upgrade) {
            notify(&*sink);
        }
    }

    fn look_again(&self, owner: OwnerId) {
        self.notify(|sink| sink.wake(Wake::LookAgain { owner }));
    }

    /// A copy of a claim, or of a wish to begin a record, is about to leave. Counted first: an end that comes later knows
    /// of it, one that came before is seen here.
    pub(super) fn leaves(&self, owner: OwnerId, now: BootInstant) -> Result<Arc<Call>, EngineError> {
        let call = self.registry.enter(owner, now)?;
        call.leaves(None)?;
        Ok(Arc::new(call))
    }

    /// The attempt ends: no copy of a claim leaves from here on, and messages mean nothing to it.
    pub(super) fn end(&self, owner: OwnerId) {
        self.registry.end(owner);
        self.leave(owner);
    }

    /// Whether a copy may arrive after an end that leaves over this link.
    pub(super) fn may_come_late(&self, owner: OwnerId, link: u64) -> bool {
        self.registry.may_come_late(owner, link)
    }

    /// A claim that is about to leave may queue.
    pub(super) fn may_queue(&self, claim: &Claim) {
        self.registry.waits(claim.owner.id(), |waits| {
            waits.get_or_insert_default().waits_for_replicas = claim.acks != Acks::None;
        });
    }

    /// When an attempt that is in the queue came; `None` if it is not known to be.
    pub(super) fn arrival(&self, owner: OwnerId) -> Option<String> {
        self.registry.waits(owner, |waits| waits.as_ref()?.arrival.clone())
    }

    /// The server answered "queued", over the link that wake-ups come over.
    pub(super) fn queued(&self, owner: OwnerId, arrival: String, link: u64) {
        self.registry.waits(owner, |waits| {
            if let Some(waits) = waits {
                waits.arrival = Some(arrival);
                waits.link = (link != NO_LINK).then_some(link);
            }
        });
    }

    pub(super) fn leave(&self, owner: OwnerId) {
        let channel = self.registry.waits(owner, |waits| waits.take()?.channel);
        channel.into_iter().for_each(|channel| self.forget(&channel, owner));
    }

    /// An attempt waits for a lock in Redisson's format: a message on its channel wakes it. Its call has begun.
    pub(super) fn listen(&self, claim: &Claim, channel: &str) {
        self.may_queue(claim);
        let owner = claim.owner.id();
        self.registry.waits(owner, |waits| waits.get_or_insert_default().channel = Some(channel.to_owned()));
        locked(&self.listeners).entry(channel.to_owned()).or_default().push(owner);
    }

    /// Whether an attempt is woken by messages on a channel.
    pub(super) fn listens(&self, owner: OwnerId) -> bool {
        self.registry.waits(owner, |waits| waits.as_ref().is_some_and(|waits| waits.channel.is_some()))
    }

    fn forget(&self, channel: &str, owner: OwnerId) {
        let mut listeners = locked(&self.listeners);
        if let Some(waiting) = listeners.get_mut(channel) {
            waiting.retain(|other| *other != owner);
            if waiting.is_empty() {
                listeners.remove(channel);
            }
        }
    }

    /// Redisson's messages: 0 for a lock that is free, of which one can have it; 1 for something that concerns all.
    fn announced(&self, channel: &str, payload: &[u8]) {
        let most = match payload {
            b"0" => 1,
            b"1" => usize::MAX,
            _ => return,
        };
        let waiting = locked(&self.listeners).get(channel).cloned().unwrap_or_default();
        // One that ended just now may have come too late to be forgotten.
        let (woken, ended): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|owner| self.listens(*owner));
        ended.into_iter().for_each(|owner| self.forget(channel, owner));
        woken.into_iter().take(most).for_each(|owner| self.look_again(owner));
    }

    /// Its claim failed without effect. One that was queued before still is, and is ended by its client.
    pub(super) fn leave_unless_queued(&self, owner: OwnerId) {
        let never_queued = |waits: &mut WaitingAttempt| waits.arrival.is_none();
        let channel = self.registry.waits(owner, |waits| waits.take_if(never_queued)?.channel);
        channel.into_iter().for_each(|channel| self.forget(&channel, owner));
    }

    /// The lock was handed to an attempt.
    fn granted(&self, link: u64, owner: OwnerId, fence: Fence) {
        // One that does not wait for replicas has left the queue, whatever its client makes of it.
        let waits_for_replicas = self.registry.waits(owner, |waits| {
            waits.take_if(|waits| !waits.waits_for_replicas);
            waits.is_some()
        });
        // Who released it waited for no replica: claiming again does.
        if waits_for_replicas {
            self.look_again(owner);
        } else {
            self.notify(|sink| sink.wake(Wake::Granted { owner, fence, link }));
        }
    }
}

impl Listener for Attempts {
    fn asked(&self) {
        self.round_trips.fetch_add(1, Ordering::Relaxed);
    }

    fn message(&self, link: u64, channel: &[u8], payload: &[u8]) {
        let channel = std::str::from_utf8(channel).unwrap_or_default();
        if channel.starts_with(REDISSON_CHANNEL) {
            return self.announced(channel, payload);
        }
        let text = std::str::from_utf8(payload).unwrap_or_default();
        // To those who watch a record: their random parts.
        if let Some(owners) = text.strip_prefix("look ") {
            return owners.split(' ').filter_map(OwnerId::parse).for_each(|owner| self.look_again(owner));
        }
        grants(text).for_each(|(owner, fence)| self.granted(link, owner, fence));
    }

    fn changed(&self, link: u64, key: Option<&[u8]>) {
        let Some(key) = key else {
            return self.notify(|sink| sink.may_be_lost(LossHint::AllChanged { link }));
        };
        let key = std::str::from_utf8(key).unwrap_or_default();
        // It may be that of a lock, or of a record, which has its name for a key.
        for name in [key.strip_prefix(&self.prefix), Some(key)].into_iter().flatten() {
            if let Ok(name) = Name::new(name) {
                self.notify(|sink| sink.may_be_lost(LossHint::Changed { name }));
            }
        }
    }

    fn connected(&self) {
        self.notify(|sink| sink.link(LinkChange::Connected));
    }

    fn disconnected(&self, link: u64, why: &str) {
        self.notify(|sink| sink.link(LinkChange::Disconnected { why: why.into() }));
        self.notify(|sink| sink.may_be_lost(LossHint::Unwatched { link }));
        if !self.by_shard {
            return self.notify(|sink| sink.wake(Wake::LookAgainAll));
        }
        // Who waits for a record finds its end at the next poll.
        let concerned = self.registry.waiting(|waits| waits.link.is_none_or(|waits_on| waits_on == link));
        concerned.into_iter().for_each(|owner| self.look_again(owner));
    }
}

/// A message is "random part of the owner value, fence", of each attempt that the lock was handed to.
fn grants(text: &str) -> impl Iterator<Item = (OwnerId, Fence)> {
    let mut words = text.split(' ');
    let pairs = std::iter::from_fn(move || Some((words.next()?, words.next()?)));
    pairs.filter_map(|(owner, fence)| Some((OwnerId::parse(owner)?, fence.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use std::{sync::Mutex, time::Duration};

    use super::*;
    use leasehold_core::{
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
            format: leasehold_core::engine::Format::Plain,
            lock_delay: Duration::ZERO,
            queue: Some(Queue { wait: Duration::from_secs(9), poll_every: Duration::from_millis(300) }),
            acks,
        }
    }

    fn queued(attempts: &Attempts, claim: &Claim, link: u64) {
        let owner = claim.owner.id();
        let call = attempts.leaves(owner, BootInstant::from_nanos(0)).unwrap();
        attempts.may_queue(claim);
        attempts.queued(owner, "1".into(), link);
        call.answered();
    }

    fn hear(acks: Acks) -> Wake {
        let heard = Arc::new(Heard::default());
        let sink: Arc<dyn WakeSink> = heard.clone();
        let (attempts, claim) = (Attempts::default(), claim(acks));
        attempts.set_sink(Arc::downgrade(&sink));
        queued(&attempts, &claim, 3);
        attempts.message(3, b"wake", format!("{} 11", claim.owner.id_text()).as_bytes());
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
    fn in_a_cluster_a_broken_link_wakes_those_who_wait_there() {
        let heard = Arc::new(Heard::default());
        let sink: Arc<dyn WakeSink> = heard.clone();
        let attempts = Attempts::new(true, "");
        attempts.set_sink(Arc::downgrade(&sink));
        let claims =
            [1, 2].map(|random| Claim { owner: Owner::new(random, &Holder::Foreign), ..claim(Acks::None) });
        for (link, claim) in [3, 4].into_iter().zip(&claims) {
            queued(&attempts, claim, link);
        }
        attempts.disconnected(4, "moved");
        let told: Vec<_> = heard.0.lock().unwrap().drain(..).collect();
        assert!(
            matches!(&told[..], [Wake::LookAgain { owner }] if *owner == claims[1].owner.id()),
            "{told:?}"
        );
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
        assert!(grants(&text).next().is_none());
        attempts.message(1, b"wake", text.as_bytes());
        let told: Vec<_> = heard.0.lock().unwrap().drain(..).collect();
        let look = |wake: &Wake, of: &Owner| matches!(wake, Wake::LookAgain { owner } if *owner == of.id());
        assert!(matches!(&told[..], [a, b] if look(a, &one) && look(b, &other)), "{told:?}");
    }

    #[test]
    fn noise_on_the_channel_is_ignored() {
        for noise in ["", "x", "0123 1", "00000000000000000000000000000007 -1"] {
            assert!(grants(noise).next().is_none());
        }
        Attempts::default().message(1, b"\xff", b"\xff\xff");
    }
}
