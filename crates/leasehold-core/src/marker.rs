//! Markers: marks of work in progress, which expire.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
//! use leasehold::Leasehold;
//!
//! let leases = Leasehold::connect("memory:").await?;
//! let processing = leases.marker("processing").layout("processing:{account}:{file}");
//! if processing.mark_if_absent(("acme", "a.csv")).await? {
//!     // One of many callers gets here; the mark expires, or is cleared.
//! }
//! assert_eq!(processing.are_marked([("acme", "a.csv"), ("acme", "b.csv")]).await?, [true, false]);
//! # leases.close().await
//! # }
//! ```
//!
//! A mark does not record who set it, and any client can clear it: it saves work, but it protects nothing. Testing first and
//! marking afterwards is a race; [`Marker::mark_if_absent`] is atomic. If no other client may clear the mark, use a
//! [guard](Marker::guard).

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    builder::setters,
    config::{WAIT_MAX, between, check_label},
    core::Core,
    engine::records::{Begun, MarkOp, Outcome, Settled},
    error::{Error, Result},
    lease::{lease_methods, validity::TTL_MIN},
    lock::Attempt,
    name::Name,
    record::{self, Began, Held, RecordRequest},
    template::{Template, escape_value},
    text::{placed, quoted},
};

const TTL_DEFAULT: Duration = Duration::from_secs(300);
/// Most marks in one call.
pub const MARKS_MAX: usize = 10_000;

/// Marks of one kind; made by `Leasehold::marker`.
///
/// Not the right tool where two at the same time do harm: that is a [`Lock`](crate::Lock).
///
/// # Errors
/// All methods: `invalid` for a bad id, ttl or layout; the store's faults.
#[derive(Clone)]
#[must_use = "a marker does nothing until something is marked"]
pub struct Marker {
    core: Arc<Core>,
    // What is wrong is reported when the marker is used, so that the builder reads as one sentence.
    layout: Result<Template>,
    ttl: Duration,
    lease_ttl: Duration,
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
    /// What is there is no plain mark and stays: a guard holds it, or another program wrote it.
    Guarded,
}

impl Marker {
    pub(crate) fn new(core: Arc<Core>, kind: &str) -> Self {
        // Escaped, a kind holds no brace that the layout could take for a place.
        let layout = match kind {
            "" => Err(Error::invalid("kind of marker", kind, "text that is not empty")),
            _ => Template::parse(&format!("{}:{{id}}", escape_value(kind)), "kind of marker"),
        };
        Self::laid_out(core, layout, TTL_DEFAULT)
    }

    pub(crate) fn laid_out(core: Arc<Core>, layout: Result<Template>, ttl: Duration) -> Self {
        let lease_ttl = core.config.ttl;
        Self { core, layout, ttl, lease_ttl, label: String::new() }
    }

    /// How keys look in the store: text with {places} for the values of an id, in this order. Default: `KIND:{id}`. `%`,
    /// `:`, `{`, `}` and control characters of values are percent-encoded, so no two ids share a key.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let uploads = leases.marker("upload").layout("upload:{account}:{file}");
    /// assert!(uploads.mark(("acme", "a.csv")).await?);
    /// # Ok(()) }
    /// ```
    pub fn layout(self, layout: &str) -> Self {
        let layout = self.layout.and_then(|_| Template::parse(layout, "layout of markers"));
        Self { layout, ..self }
    }

    setters! {
        /// How long a mark lasts. Default 5 min.
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
        /// # use std::time::Duration;
        /// # let leases = leasehold::Leasehold::connect("memory:").await?;
        /// let uploads = leases.marker("upload").ttl(Duration::from_secs(60));
        /// assert!(uploads.mark("a.csv").await?);
        /// # Ok(()) }
        /// ```
        ttl(ttl: Duration) => ttl;
        /// How long a [guard](Marker::guard) outlives a crash of its holder. Default: the ttl of locks.
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
        /// # use std::time::Duration;
        /// # let leases = leasehold::Leasehold::connect("memory:").await?;
        /// let uploads = leases.marker("upload").lease_ttl(Duration::from_secs(10));
        /// let guard = uploads.guard("a.csv").await?.held().unwrap();
        /// # guard.finish().await?;
        /// # Ok(()) }
        /// ```
        lease_ttl(ttl: Duration) => lease_ttl;
        /// What people see as the holder of a guard, besides host and process.
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
        /// # use std::time::Duration;
        /// # let leases = leasehold::Leasehold::connect("memory:").await?;
        /// let uploads = leases.marker("upload").label("worker 3");
        /// # assert!(uploads.mark("a.csv").await?);
        /// # Ok(()) }
        /// ```
        label(label: impl Into<String>) => label;
    }

    /// Marks it; an existing mark gets the full ttl again. False if a guard or another program's value is there, which stays.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let uploads = leases.marker("upload");
    /// assert!(uploads.mark("a.csv").await?);
    /// assert!(uploads.mark("a.csv").await?, "its ttl starts again");
    /// # Ok(()) }
    /// ```
    pub async fn mark(&self, id: impl MarkerId) -> Result<bool> {
        Ok(self.mark_many([id]).await? == [true])
    }

    /// [`Marker::mark`] for many, in one round trip.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let uploads = leases.marker("upload");
    /// assert_eq!(uploads.mark_many(["a.csv", "b.csv"]).await?, [true, true]);
    /// # Ok(()) }
    /// ```
    pub async fn mark_many<I: MarkerId>(&self, ids: impl IntoIterator<Item = I>) -> Result<Vec<bool>> {
        self.on_marks(ids, MarkOp::Set(self.ttl), "marking").await
    }

    /// Marks it if it is not marked. True if it was not: of many who ask at once, one is told so. After an error without an
    /// answer it is not known whether it was marked.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let uploads = leases.marker("upload");
    /// assert!(uploads.mark_if_absent("a.csv").await?);
    /// assert!(!uploads.mark_if_absent("a.csv").await?);
    /// # Ok(()) }
    /// ```
    pub async fn mark_if_absent(&self, id: impl MarkerId) -> Result<bool> {
        Ok(self.mark_many_if_absent([id]).await? == [true])
    }

    /// [`Marker::mark_if_absent`] for many, each for itself, in one round trip.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let uploads = leases.marker("upload");
    /// assert!(uploads.mark("a.csv").await?);
    /// assert_eq!(uploads.mark_many_if_absent(["a.csv", "b.csv"]).await?, [false, true]);
    /// # Ok(()) }
    /// ```
    pub async fn mark_many_if_absent<I: MarkerId>(
        &self,
        ids: impl IntoIterator<Item = I>,
    ) -> Result<Vec<bool>> {
        self.on_marks(ids, MarkOp::SetIfAbsent(self.ttl), "marking").await
    }

    /// Whether it is marked or guarded.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let uploads = leases.marker("upload");
    /// assert!(!uploads.is_marked("a.csv").await?);
    /// # Ok(()) }
    /// ```
    pub async fn is_marked(&self, id: impl MarkerId) -> Result<bool> {
        Ok(self.are_marked([id]).await? == [true])
    }

    /// [`Marker::is_marked`] for many, in one round trip.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let uploads = leases.marker("upload");
    /// assert!(uploads.mark("a.csv").await?);
    /// assert_eq!(uploads.are_marked(["a.csv", "b.csv"]).await?, [true, false]);
    /// # Ok(()) }
    /// ```
    pub async fn are_marked<I: MarkerId>(&self, ids: impl IntoIterator<Item = I>) -> Result<Vec<bool>> {
        self.on_marks(ids, MarkOp::Test, "looking at").await
    }

    /// Clears a mark, whoever set it. A guard and anything that is no mark stay.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// # use leasehold::marker::Cleared;
    /// let uploads = leases.marker("upload");
    /// assert_eq!(uploads.clear("a.csv").await?, Cleared::NotMarked);
    /// # Ok(()) }
    /// ```
    pub async fn clear(&self, id: impl MarkerId) -> Result<Cleared> {
        if self.clear_many([&id]).await? == [true] {
            return Ok(Cleared::Cleared);
        }
        Ok(if self.is_marked(&id).await? { Cleared::Guarded } else { Cleared::NotMarked })
    }

    /// Clears many marks, in one round trip. True where one was cleared.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let uploads = leases.marker("upload");
    /// assert!(uploads.mark("a.csv").await?);
    /// assert_eq!(uploads.clear_many(["a.csv", "b.csv"]).await?, [true, false]);
    /// # Ok(()) }
    /// ```
    pub async fn clear_many<I: MarkerId>(&self, ids: impl IntoIterator<Item = I>) -> Result<Vec<bool>> {
        self.on_marks(ids, MarkOp::Clear, "clearing").await
    }

    async fn on_marks<I: MarkerId>(
        &self,
        ids: impl IntoIterator<Item = I>,
        op: MarkOp,
        doing: &str,
    ) -> Result<Vec<bool>> {
        let keys = ids.into_iter().take(MARKS_MAX + 1).map(|id| self.key(&id));
        let keys = keys.collect::<Result<Vec<_>>>()?;
        if keys.len() > MARKS_MAX {
            let expected = format!("at most {MARKS_MAX} in one call");
            return Err(Error::invalid("number of marks", "more", expected));
        }
        let Some(first) = keys.first() else { return Ok(Vec::new()) };
        let answer = self.core.records()?.on_marks(&keys, op, self.core.command_until()).await;
        answer.map_err(|error| self.core.failed(error, doing, first))
    }

    /// A mark that is yours: kept alive until you finish or drop it, and nobody else can clear it. One that is marked or
    /// guarded already is [`Attempt::Busy`].
    ///
    /// # Cancel safety
    /// Dropping the future gives back, in the background, what may have been marked.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// # use leasehold::Attempt;
    /// let uploads = leases.marker("upload");
    /// match uploads.guard("a.csv").await? {
    ///     Attempt::Held(guard) => drop(guard.finish().await?),
    ///     Attempt::Busy { .. } => println!("another upload of it is in progress"),
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn guard(&self, id: impl MarkerId) -> Result<Attempt<MarkerGuard>> {
        between("ttl of the lease", self.lease_ttl, TTL_MIN, self.core.config.max_ttl)?;
        check_label(&self.label)?;
        let request = RecordRequest {
            key: self.key(&id)?,
            fingerprint: None,
            lease: self.lease_ttl,
            wait: Duration::ZERO,
            label: self.label.clone(),
            left_when_dropped: false,
            telemetry: self.core.telemetry.clone(),
        };
        let pause = || self.core.config.retry.pause(0, self.core.entropy.fraction());
        Ok(match record::begin(&self.core, &request).await? {
            Began::Yours(held) => Attempt::Held(MarkerGuard { held }),
            Began::Stands(Begun::Running { holder, expires_in }) => Attempt::Busy {
                holder: Some(holder),
                retry_after: pause().min(expires_in).max(Duration::from_millis(1)),
            },
            Began::Stands(_) => Attempt::Busy { holder: None, retry_after: pause() },
        })
    }

    fn key(&self, id: &impl MarkerId) -> Result<Name> {
        self.core.check_open()?;
        between("ttl of marks", self.ttl, TTL_MIN, WAIT_MAX)?;
        let layout = self.layout.as_ref().map_err(Clone::clone)?;
        id.key(layout).map_err(|error| placed(error, "id of a mark"))
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
    /// Clears the mark. One that ran out and is somebody else's by now stays: [`Settled::FencedOff`]. After an error of the
    /// store it is cleared in the background, or ends with its lease.
    ///
    /// # Cancel safety
    /// Dropping the future after it was polled still clears it, in the background.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let guard = leases.marker("upload").guard("a.csv").await?.held().unwrap();
    /// guard.finish().await?;
    /// assert!(!leases.marker("upload").is_marked("a.csv").await?);
    /// # Ok(()) }
    /// ```
    pub async fn finish(self) -> Result<Settled> {
        self.held.settle(Outcome::Retry, Duration::ZERO).await
    }

    lease_methods! { |guard| guard.held.lease() }
}

impl fmt::Debug for MarkerGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.held.lease().fmt(f)
    }
}

/// What a mark is about: one value, a tuple of as many as the layout has places, or an array of `(place, value)`.
pub trait MarkerId {
    /// The key in the store; `invalid` if these are not the values of the layout.
    fn key(&self, layout: &Template) -> Result<Name>;
}

impl<I: MarkerId + ?Sized> MarkerId for &I {
    fn key(&self, layout: &Template) -> Result<Name> {
        (**self).key(layout)
    }
}

impl<K: AsRef<str>, V: ToString, const N: usize> MarkerId for [(K, V); N] {
    fn key(&self, layout: &Template) -> Result<Name> {
        layout.render(self.iter().map(|(place, value)| (place.as_ref(), value.to_string())))
    }
}

/// The key for values in the order of the layout's places.
fn in_order(layout: &Template, values: &[String]) -> Result<Name> {
    let places = layout.parameters().count();
    if places != values.len() {
        let expected = format!("{places} values for {}", layout.as_str());
        return Err(Error::invalid("id of a mark", quoted(&values.join(", ")), expected));
    }
    layout.render(layout.parameters().zip(values))
}

macro_rules! ids {
    ($($type:ty),+; $($($value:ident)+;)+) => {
        $(impl MarkerId for $type {
            fn key(&self, layout: &Template) -> Result<Name> {
                in_order(layout, &[self.to_string()])
            }
        })+

        $(impl<$($value: ToString),+> MarkerId for ($($value,)+) {
            fn key(&self, layout: &Template) -> Result<Name> {
                #[expect(non_snake_case, reason = "a value is named as its type")]
                let ($($value,)+) = self;
                in_order(layout, &[$($value.to_string()),+])
            }
        })+
    };
}

ids! { str, String, u32, u64, u128, i32, i64, usize; A; A B; A B C; A B C D; }
