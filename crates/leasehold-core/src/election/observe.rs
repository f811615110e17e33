//! Who leads, as others see it.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{
    Stream, StreamExt,
    stream::{self, BoxStream},
};

use crate::{
    clock::BootInstant,
    core::Core,
    engine::{EngineError, Inspection, Mode},
    fence::Fence,
    name::Name,
    owner::Holder,
};

/// Who leads an election, as an observer sees it. Times are those of the observer: when it first saw this.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Observed {
    /// Somebody does. It may have stopped since: only a fence that is checked protects from a late leader.
    Leader {
        /// Who.
        holder: Holder,
        /// Under which fence. Never lower than that of a leader that was reported before.
        fence: Fence,
        /// Since when, as far as is known.
        since: BootInstant,
    },
    /// Nobody does.
    Vacant {
        /// Since when.
        since: BootInstant,
    },
    /// The store could not be asked, or it answered from old data, or something else holds the name.
    Unknown {
        /// Since when.
        since: BootInstant,
    },
}

impl Observed {
    /// Whether it is the same, seen at another time.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Leader { fence: one, .. }, Self::Leader { fence: other, .. }) => one == other,
            (Self::Vacant { .. }, Self::Vacant { .. }) | (Self::Unknown { .. }, Self::Unknown { .. }) => true,
            _ => false,
        }
    }
}

/// What an observer has seen so far.
#[derive(Default)]
struct Seen {
    last: Option<Observed>,
    /// The last leader and since when it was seen.
    leader: Option<(Fence, BootInstant)>,
}

impl Seen {
    /// What is new about an answer that came at that time (pure).
    fn news(&mut self, answer: Result<Inspection, EngineError>, at: BootInstant) -> Option<Observed> {
        let now = self.read(answer, at);
        if self.last.as_ref().is_some_and(|last| last.is_same(&now)) {
            return None;
        }
        self.last = Some(now.clone());
        Some(now)
    }

    fn read(&mut self, answer: Result<Inspection, EngineError>, at: BootInstant) -> Observed {
        let Ok(found) = answer else { return Observed::Unknown { since: at } };
        let Some(held) = found.holders.shown.into_iter().next() else {
            return Observed::Vacant { since: at };
        };
        let before = self.leader.map_or(Fence::default(), |(fence, _)| fence);
        let is_leader = held.mode == Mode::Exclusive && held.fence > Fence::default();
        if !is_leader || held.fence < before {
            return Observed::Unknown { since: at };
        }
        let (fence, since) = *self.leader.insert(match self.leader {
            Some(leader) if leader.0 == held.fence => leader,
            _ => (held.fence, at),
        });
        Observed::Leader { holder: held.holder, fence, since }
    }
}

/// Who leads, again and again: a stream, and [`Leaders::next`]; made by [`Election::observe`](super::Election::observe). Dropping it
/// leaves nothing behind in the store.
#[must_use = "an observer asks nobody until it is polled"]
pub struct Leaders {
    news: BoxStream<'static, Observed>,
}

impl Leaders {
    pub(super) fn new(core: Arc<Core>, name: Name, every: Duration) -> Self {
        Self { news: news(core, name, every) }
    }

    /// What is new; at first the present. `None` once the client is closed.
    ///
    /// # Cancel safety
    /// Safe: dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Observed> {
        self.news.next().await
    }
}

impl Stream for Leaders {
    type Item = Observed;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Observed>> {
        self.news.poll_next_unpin(context)
    }
}

impl fmt::Debug for Leaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaders").finish_non_exhaustive()
    }
}

/// Asks again and again, and reports what is new.
fn news(core: Arc<Core>, name: Name, every: Duration) -> BoxStream<'static, Observed> {
    let closing = core.closing().cancelled_owned();
    let start = (core.clone(), name, Seen::default(), core.clock.now());
    let news = stream::unfold(start, move |(core, name, mut seen, mut next_at)| async move {
        loop {
            core.clock.sleep_until(next_at).await;
            next_at = core.clock.now() + every;
            let answer = core.engine.inspector().inspect(&name, core.command_until()).await;
            if let Some(news) = seen.news(answer, core.clock.now()) {
                return Some((news, (core, name, seen, next_at)));
            }
        }
    });
    news.take_until(closing).boxed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Holders, Tenure};

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_nanos(seconds * 1_000_000_000)
    }

    fn led_under(fence: u64, mode: Mode) -> Result<Inspection, EngineError> {
        let (holder, fence) = (Holder::this_process("x", 5), Fence::new(fence));
        let tenure = Tenure { holder, fence, mode, expires_in: None };
        let name = Name::new("x").unwrap();
        Ok(Inspection { holders: Holders::one(tenure), ..Inspection::unused(name) })
    }

    fn vacant() -> Result<Inspection, EngineError> {
        Ok(Inspection::unused(Name::new("x").unwrap()))
    }

    fn led(fence: u64, since: u64) -> Option<Observed> {
        let (holder, fence, since) = (Holder::this_process("x", 5), Fence::new(fence), at(since));
        Some(Observed::Leader { holder, fence, since })
    }

    #[test]
    fn news_never_repeats_and_never_goes_back() {
        let (mut seen, exclusive) = (Seen::default(), Mode::Exclusive);
        assert_eq!(seen.news(vacant(), at(1)), Some(Observed::Vacant { since: at(1) }));
        assert_eq!(seen.news(vacant(), at(2)), None);
        assert_eq!(seen.news(led_under(7, exclusive), at(3)), led(7, 3));
        assert_eq!(seen.news(led_under(7, exclusive), at(4)), None);
        let lost = Err(EngineError::no_answer());
        assert_eq!(seen.news(lost.clone(), at(5)), Some(Observed::Unknown { since: at(5) }));
        assert_eq!(seen.news(lost, at(6)), None);
        assert_eq!(seen.news(led_under(7, exclusive), at(7)), led(7, 3), "the same leader as before");
        assert_eq!(seen.news(led_under(9, exclusive), at(8)), led(9, 8), "one may be skipped");
        let old = seen.news(led_under(7, exclusive), at(9));
        assert_eq!(old, Some(Observed::Unknown { since: at(9) }), "old data");
        assert_eq!(seen.news(vacant(), at(10)), Some(Observed::Vacant { since: at(10) }));
    }

    #[test]
    fn what_is_no_leader_is_unknown() {
        for answer in [led_under(0, Mode::Exclusive), led_under(7, Mode::Shared)] {
            let news = Seen::default().news(answer, at(1));
            assert_eq!(news, Some(Observed::Unknown { since: at(1) }));
        }
    }
}
