//! Markers: "somebody is at it", for a while.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
//! use leasehold::Leasehold;
//!
//! let leases = Leasehold::connect("memory:").await?;
//! let processing = leases.marker("processing").layout("processing:{account}:{file}");
//! if processing.mark_if_absent(("acme", "a.csv")).await? {
//!     // One of many got here; the mark ends by itself, or when it is cleared.
//! }
//! assert_eq!(processing.are_marked([("acme", "a.csv"), ("acme", "b.csv")]).await?, [true, false]);
//! # leases.close().await
//! # }
//! ```
//!
//! A mark says nothing about who set it, and anybody can clear it: it saves work, it protects nothing. To ask first and to
//! mark then is a race; [`Marker::mark_if_absent`] is one step. Where a mark must not be cleared by somebody else, take a
//! [guard](Marker::guard).

use std::{fmt, ops::Deref, sync::Arc, time::Duration};

use crate::{
    config::{WAIT_MAX, between, check_label, placed, quoted},
    core::Core,
    engine::records::{Begun, Outcome, Settled},
    error::{Error, Result},
    lease::{Lease, validity::TTL_MIN},
    lock::Attempt,
    name::Name,
    record::{self, Began, Held, Wish},
    template::{Template, escape_value},
};

const TTL_DEFAULT: Duration = Duration::from_secs(300);
/// Most marks in one call.
pub const MARKS_MAX: usize = 10_000;

/// Marks of one kind; made by [`Leasehold::marker`](crate::Leasehold::marker).
///
/// Not the right tool when something goes wrong if two are at it: that is a [`Lock`](crate::Lock).
#[derive(Clone)]
#[must_use = "a marker does nothing until something is marked"]
pub struct Marker {
    core: Arc<Core>,
    // What is wrong is reported when the marker is used, so that the builder reads as one sentence.
    layout: Result<Template>,
    ttl: Duration,
    lease: Duration,
    label: String,
}

/// What became of a mark that was to be cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cleared {
    /// It is gone.
    Cleared,
    /// There was none.
    NotMarked,
    /// What is there is no plain mark: a guard holds it, or another program wrote it. It was left alone.
    Guarded,
}

impl Marker {
    pub(crate) fn new(core: Arc<Core>, kind: &str) -> Self {
        // Escaped, a kind holds no brace that the layout could take for a place.
        let layout = format!("{}:{{id}}", escape_value(kind));
        let layout = if kind.is_empty() {
            Err(Error::invalid("kind of marker", kind, "text that is not empty"))
        } else {
            Template::parse(&layout, kind, "kind of marker")
        };
        Self::laid_out(core, layout, TTL_DEFAULT)
    }

    pub(crate) fn laid_out(core: Arc<Core>, layout: Result<Template>, ttl: Duration) -> Self {
        let lease = core.config.ttl;
        Self { core, layout, ttl, lease, label: String::new() }
    }

    /// How keys look in the store: text with {places} for the values of an id, in this order. Default: `KIND:{id}`. `%`,
    /// `:`, `{`, `}` and control characters of values are percent-encoded, so no two ids share a key.
    pub fn layout(mut self, layout: &str) -> Self {
        self.layout = self.layout.and_then(|_| Template::parse(layout, layout, "layout of markers"));
        self
    }

    /// How long a mark lasts. Default 5 min.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long a [guard](Marker::guard) outlives a crash of its holder. Default: the ttl of locks.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// What people see as the holder of a guard, besides host and process.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Marks it; a mark that is there lasts anew. False if a guard holds it, or if another program's value is there: it was
    /// left alone.
    ///
    /// # Errors
    /// `invalid` for a bad id or ttl; the store's faults.
    pub async fn mark(&self, id: impl MarkerId) -> Result<bool> {
        Ok(self.mark_many([id]).await? == [true])
    }

    /// Marks all of them, in one round trip.
    ///
    /// # Errors
    /// As [`Marker::mark`].
    pub async fn mark_many<I: MarkerId>(&self, ids: impl IntoIterator<Item = I>) -> Result<Vec<bool>> {
        self.set(ids, false).await
    }

    /// Marks it if it is not marked. True if it was not: of many who ask at once, one is told so.
    ///
    /// # Errors
    /// As [`Marker::mark`]; without an answer it is not known whether it was marked.
    pub async fn mark_if_absent(&self, id: impl MarkerId) -> Result<bool> {
        Ok(self.mark_many_if_absent([id]).await? == [true])
    }

    /// The same for many, each for itself, in one round trip.
    ///
    /// # Errors
    /// As [`Marker::mark_if_absent`].
    pub async fn mark_many_if_absent<I: MarkerId>(
        &self,
        ids: impl IntoIterator<Item = I>,
    ) -> Result<Vec<bool>> {
        self.set(ids, true).await
    }

    async fn set<I: MarkerId>(&self, ids: impl IntoIterator<Item = I>, if_absent: bool) -> Result<Vec<bool>> {
        let keys = self.keys(ids)?;
        let Some(first) = keys.first() else { return Ok(Vec::new()) };
        let answer = self.core.records()?.mark(&keys, self.ttl, if_absent, self.core.command_until()).await;
        answer.map_err(|error| self.core.failed(error, "marking", first))
    }

    /// Whether it is marked or guarded.
    ///
    /// # Errors
    /// As [`Marker::mark`].
    pub async fn is_marked(&self, id: impl MarkerId) -> Result<bool> {
        Ok(self.are_marked([id]).await? == [true])
    }

    /// The same for many, in one round trip.
    ///
    /// # Errors
    /// As [`Marker::mark`].
    pub async fn are_marked<I: MarkerId>(&self, ids: impl IntoIterator<Item = I>) -> Result<Vec<bool>> {
        let keys = self.keys(ids)?;
        let Some(first) = keys.first() else { return Ok(Vec::new()) };
        let answer = self.core.records()?.exist(&keys, self.core.command_until()).await;
        answer.map_err(|error| self.core.failed(error, "looking at", first))
    }

    /// Clears a mark, whoever set it; one that a guard holds is left alone, and so is anything that is no mark.
    ///
    /// # Errors
    /// As [`Marker::mark`].
    pub async fn clear(&self, id: impl MarkerId) -> Result<Cleared> {
        let id = id.values();
        if self.clear_many([Values(&id)]).await? == [true] {
            return Ok(Cleared::Cleared);
        }
        Ok(if self.is_marked(Values(&id)).await? { Cleared::Guarded } else { Cleared::NotMarked })
    }

    /// Clears many marks, in one round trip. True where one was cleared.
    ///
    /// # Errors
    /// As [`Marker::mark`].
    pub async fn clear_many<I: MarkerId>(&self, ids: impl IntoIterator<Item = I>) -> Result<Vec<bool>> {
        let keys = self.keys(ids)?;
        let Some(first) = keys.first() else { return Ok(Vec::new()) };
        let answer = self.core.records()?.clear(&keys, self.core.command_until()).await;
        answer.map_err(|error| self.core.failed(error, "clearing", first))
    }

    /// A mark that is yours: kept alive until you finish or drop it, and nobody else can clear it.
    ///
    /// # Cancel safety
    /// Dropping the future gives back, in the background, what may have been marked.
    ///
    /// # Errors
    /// As [`Marker::mark`]; one that is marked or guarded already is [`Attempt::Busy`].
    pub async fn guard(&self, id: impl MarkerId) -> Result<Attempt<MarkerGuard>> {
        between("lease", self.lease, TTL_MIN, self.core.config.max_ttl)?;
        check_label(&self.label)?;
        let key = self.key(&id)?;
        let wish = Wish {
            key,
            fingerprint: None,
            lease: self.lease,
            wait: Duration::ZERO,
            label: self.label.clone(),
            left_when_dropped: false,
        };
        let pause = || self.core.config.retry.pause(0, self.core.entropy.fraction());
        Ok(match record::begin(&self.core, &wish).await? {
            Began::Yours(held) => Attempt::Held(MarkerGuard { held }),
            Began::Stands(Begun::Running { holder, expires_in }) => Attempt::Busy {
                holder: Some(holder),
                retry_after: pause().min(expires_in).max(Duration::from_millis(1)),
            },
            Began::Stands(_) => Attempt::Busy { holder: None, retry_after: pause() },
        })
    }

    fn keys<I: MarkerId>(&self, ids: impl IntoIterator<Item = I>) -> Result<Vec<Name>> {
        let keys: Vec<Name> =
            ids.into_iter().take(MARKS_MAX + 1).map(|id| self.key(&id)).collect::<Result<_>>()?;
        if keys.len() > MARKS_MAX {
            return Err(Error::invalid(
                "number of marks",
                "more",
                format!("at most {MARKS_MAX} in one call"),
            ));
        }
        Ok(keys)
    }

    fn key(&self, id: &impl MarkerId) -> Result<Name> {
        self.core.check_open()?;
        between("ttl of marks", self.ttl, TTL_MIN, WAIT_MAX)?;
        let layout = self.layout.as_ref().map_err(Clone::clone)?;
        let (places, values) = (layout.parameters().count(), id.values());
        if places != values.len() {
            let allowed = format!("{places} values for {}", layout.as_str());
            return Err(Error::invalid("id of a mark", quoted(&values.join(", ")), allowed));
        }
        let values: Vec<_> = layout.parameters().zip(values).collect();
        layout.render(values).map_err(|error| placed(error, "id of a mark"))
    }
}

impl fmt::Debug for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layout = self.layout.as_ref().map_or("", |layout| layout.as_str());
        f.debug_struct("Marker").field("layout", &layout).field("ttl", &self.ttl).finish_non_exhaustive()
    }
}

/// A mark that is yours until you finish it, drop it, or lose it.
///
/// Dropping it clears it in the background; if the program ends first, it ends with its lease.
#[must_use = "the mark is cleared when the guard is dropped"]
pub struct MarkerGuard {
    held: Held,
}

impl MarkerGuard {
    /// Clears the mark. One that ran out and is somebody else's by now is left alone: [`Settled::FencedOff`].
    ///
    /// # Cancel safety
    /// Dropping the future after it was polled still clears it, in the background.
    ///
    /// # Errors
    /// The store's faults: it is then cleared in the background, or ends with its lease.
    pub async fn finish(self) -> Result<Settled> {
        self.held.settle(Outcome::Retry, Duration::ZERO).await
    }
}

/// What a lease tells: its fence, whether it is held, when it is lost.
impl Deref for MarkerGuard {
    type Target = Lease;
    fn deref(&self) -> &Lease {
        self.held.lease()
    }
}

impl fmt::Debug for MarkerGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.held.lease().fmt(f)
    }
}

/// What a mark is about: one value, or a tuple of as many as the layout has places.
pub trait MarkerId {
    /// The values, in the order of the layout's places.
    fn values(&self) -> Vec<String>;
}

struct Values<'a>(&'a [String]);

impl MarkerId for Values<'_> {
    fn values(&self) -> Vec<String> {
        self.0.to_vec()
    }
}

macro_rules! single_values {
    ($($type:ty),+) => {$(
        impl MarkerId for $type {
            fn values(&self) -> Vec<String> {
                vec![self.to_string()]
            }
        }
    )+};
}

single_values!(&str, String, &String, u32, u64, u128, i32, i64, usize);

macro_rules! tuples {
    ($($($value:ident)+;)+) => {$(
        impl<$($value: ToString),+> MarkerId for ($($value,)+) {
            fn values(&self) -> Vec<String> {
                #[expect(non_snake_case, reason = "a value is named as its type")]
                let ($($value,)+) = self;
                vec![$($value.to_string()),+]
            }
        }
    )+};
}

tuples! { A; A B; A B C; A B C D; }
