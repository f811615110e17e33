//! What is said while a lease cannot be renewed: once at the beginning, then rarely, and when it is over.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::FutureExt;
use leasehold::{Event, clock::BootInstant, lease::validity};
use tokio::sync::Notify;

use crate::output::{clean, spoken};

/// Shortest time between two lines.
const SAID_EVERY: Duration = Duration::from_secs(10);

/// Renewals that got no answer, as the client reports them.
#[derive(Clone, Default)]
pub(crate) struct Misses(Arc<Missed>);

#[derive(Default)]
struct Missed {
    why: Mutex<String>,
    news: Notify,
}

impl Misses {
    /// Takes note of an event of the client.
    pub(super) fn on_event(&self, event: &Event) {
        if let Event::RenewalMissed { why, .. } = event {
            self.0.why.lock().unwrap_or_else(PoisonError::into_inner).clone_from(why);
            self.0.news.notify_one();
        }
    }

    /// Forgets what was missed before the lease began that is now of interest.
    pub(super) fn forget(&self) {
        let _old = self.0.news.notified().now_or_never();
    }

    /// Why the next renewal was missed.
    ///
    /// # Cancel safety
    /// Safe: a miss stays until it is taken; of several, the last.
    pub(super) async fn next(&self) -> String {
        self.0.news.notified().await;
        self.0.why.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Whether renewals of a lease fail at present, and what was said about it.
#[derive(Default)]
pub(super) struct Trouble {
    /// When the last good renewal was sent, while there is trouble.
    since: Option<BootInstant>,
    silent_until: Option<BootInstant>,
}

impl Trouble {
    /// A renewal was missed; returns what to say, if anything.
    pub(super) fn missed(
        &mut self,
        name: &str,
        why: &str,
        now: BootInstant,
        valid_until: BootInstant,
        ttl: Duration,
    ) -> Option<String> {
        let since = *self.since.get_or_insert(valid_until - (ttl - validity::drift(ttl)));
        if self.silent_until.is_some_and(|until| now < until) {
            return None;
        }
        let lasted = now.since(since);
        self.silent_until = Some(now + lasted.max(SAID_EVERY));
        let (lasted, left, why) = (spoken(lasted), spoken(valid_until.since(now)), clean(why));
        Some(format!("warning: cannot renew \"{name}\" for {lasted}: {why}; the lease ends in {left}"))
    }

    /// A renewal succeeded; returns what to say, if anything.
    pub(super) fn renewed(&mut self, name: &str, now: BootInstant) -> Option<String> {
        let since = std::mem::take(self).since?;
        Some(format!("renewed \"{name}\" again after {}", spoken(now.since(since))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_is_told_at_its_beginning_rarely_while_it_lasts_and_at_its_end() {
        let (start, ttl) = (BootInstant::from_nanos(1 << 40), Duration::from_secs(100));
        let until = validity::valid_until(start, ttl);
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut trouble = Trouble::default();
        assert_eq!(trouble.renewed("x", at(1)), None);
        let missed =
            |trouble: &mut Trouble, seconds| trouble.missed("x", "no\tanswer", at(seconds), until, ttl);
        assert_eq!(
            missed(&mut trouble, 20).as_deref(),
            Some("warning: cannot renew \"x\" for 20s: no\u{fffd}answer; the lease ends in 1m 18s")
        );
        assert_eq!(missed(&mut trouble, 25), None);
        assert!(missed(&mut trouble, 40).is_some_and(|said| said.contains("for 40s")));
        assert_eq!(missed(&mut trouble, 79), None);
        assert_eq!(trouble.renewed("x", at(80)).as_deref(), Some("renewed \"x\" again after 1m 20s"));
        assert_eq!(trouble.renewed("x", at(81)), None);
    }
}
