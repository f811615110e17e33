//! A client of one store, however that was found.

mod schema;

use std::{fmt, num::NonZeroU32, sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::BoxStream};

use crate::{
    clock::Clock,
    config::{Config, between},
    core::Core,
    deadlines::Deadlines,
    election::Election,
    engine::{
        self, Capabilities, Changes, Cursor, Engine, Health, Inspection, Listing, Member, Page, Released,
        Watch, Watched, all_items,
    },
    error::{Error, Result},
    fence::Fence,
    forced,
    idempotency::{Idempotency, IdempotencyKey},
    latch::{Barrier, Latch},
    lease::{Attach, Handle},
    lock::{Kind, Lock, LockOwner, LockSet},
    marker::Marker,
    name::Name,
    telemetry::{Observer, Stats},
    template::Template,
};

pub use schema::Schema;

/// Names that one page of a listing asks for.
pub(crate) const PAGE: u32 = 500;

/// A client of one store; `leasehold::Leasehold` is one that was found by its URL. Cheap to clone; clones share everything.
///
/// # Errors
/// All methods: `invalid` for a bad name, `unsupported` after [`Client::close`], and the store's faults.
#[derive(Clone)]
pub struct Client {
    pub(crate) core: Arc<Core>,
}

/// What a client is made of besides its engine.
pub struct ClientOptions {
    /// Settings, checked already.
    pub config: Config,
    /// Where the time comes from.
    pub clock: Clock,
    /// Receives the events of the client.
    pub observer: Option<Arc<dyn Observer>>,
    /// Makes randomness repeatable, for tests.
    pub seed: Option<u64>,
    /// What errors call the store; without a password.
    pub store: String,
    /// Policies under which locks and requests can be counted.
    pub policies: Vec<String>,
}

impl Client {
    /// A client of this engine. Starts its tasks, and reaches nothing yet.
    ///
    /// # Errors
    /// `unsupported` outside of a Tokio runtime.
    pub fn start(engine: Arc<dyn Engine>, options: ClientOptions) -> Result<Self> {
        if tokio::runtime::Handle::try_current().is_err() {
            let why = "it must be called from within a Tokio runtime";
            return Err(Error::unsupported("connecting from here", why));
        }
        Ok(Self { core: Arc::new(Core::start(engine, options)) })
    }

    /// Reaches the store once, so that a wrong address or password shows before the first lock.
    pub async fn reach(&self) -> Result<()> {
        let reached = self.core.engine.connect(self.core.command_until()).await;
        reached.map_err(|error| self.core.explain_doing(error, "connecting".into(), None))
    }

    /// An exclusive lock of that name.
    pub fn lock(&self, name: impl AsRef<str>) -> Lock {
        self.lock_named(Name::new(name.as_ref()))
    }

    /// A lock whose name a key schema made; a bad name is reported when it is acquired.
    pub fn lock_named(&self, name: Result<Name>) -> Lock {
        Lock::named(self.core.clone(), name, Kind::Exclusive)
    }

    /// An owner of locks, who may acquire them again while it holds them: see [`LockOwner`].
    pub fn owner(&self) -> LockOwner {
        LockOwner::new(self.clone())
    }

    /// Several locks of this client at once, of any kind: all of them or none. See [`LockSet`].
    pub fn lock_all(&self, locks: impl IntoIterator<Item = Lock>) -> LockSet {
        LockSet::new(self.core.clone(), locks.into_iter().collect())
    }

    /// The election of that name, to take part in or to observe: see [`election`](crate::election). It is the exclusive lock
    /// of that name, kept alive for a term.
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election::new(self.lock(name))
    }

    /// The shared side of the read-write lock of that name: many readers, and no writer beside them. A reader behind a waiting
    /// writer waits, so that writers are not starved; when the writer is done, all readers up to the next writer come in.
    ///
    /// Every reader has a fence of its own, above that of the last writer and below that of the next one. A resource that
    /// remembers the fence of its last write can refuse a reader that was paused since before it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let one = leases.read_lock("config").acquire().await?;
    /// let other = leases.read_lock("config").acquire().await?;
    /// assert!(leases.write_lock("config").try_acquire().await?.held().is_none());
    /// # let _ = (one.release().await?, other.release().await?);
    /// # leases.close().await
    /// # }
    /// ```
    pub fn read_lock(&self, name: impl AsRef<str>) -> Lock {
        Lock::named(self.core.clone(), Name::new(name.as_ref()), Kind::Shared)
    }

    /// The exclusive side of a read-write lock: the same as [`Client::lock`] of that name.
    pub fn write_lock(&self, name: impl AsRef<str>) -> Lock {
        self.lock(name)
    }

    /// A semaphore: at most `limit` permits are held at a time. [`Lock::permits`] takes several. The store keeps the limit, for
    /// a day after the last use; another number is an error, so that two deployments never admit more than either of them
    /// says. [`Client::set_limit`] changes it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let one = leases.semaphore("gpu", 2).acquire().await?;
    /// let other = leases.semaphore("gpu", 2).acquire().await?;
    /// assert!(leases.semaphore("gpu", 2).try_acquire().await?.held().is_none());
    /// assert_eq!(leases.semaphore("gpu", 8).acquire().await.unwrap_err().kind(), leasehold::ErrorKind::OtherLimit);
    /// # let _ = (one.release().await?, other.release().await?);
    /// # leases.close().await
    /// # }
    /// ```
    pub fn semaphore(&self, name: impl AsRef<str>, limit: u32) -> Lock {
        Lock::named(self.core.clone(), Name::new(name.as_ref()), Kind::Permits { take: 1, of: limit })
    }

    /// Changes how many permits a semaphore has. A lower limit takes nothing away: nobody is admitted until enough permits
    /// came back. A higher one admits those who wait. Programs that name the limit of its first use go on to work, and so do
    /// those that name the new one.
    ///
    /// # Errors
    /// `invalid` for 0; `other_mode` when the name is in use as a read-write lock; `unsupported` where there are no permits.
    pub async fn set_limit(&self, name: impl AsRef<str>, limit: u32) -> Result<()> {
        let name = self.name(name.as_ref())?;
        let refused = || Error::invalid("limit", "0", "1 or more").about(format!("the semaphore \"{name}\""));
        let limit = NonZeroU32::new(limit).ok_or_else(refused)?;
        let answer = self.core.engine.leases().set_limit(&name, limit, self.core.command_until()).await;
        answer.map_err(|error| self.core.failed(error, "setting the limit of", &name))
    }

    /// A latch: opens when `count` participants, at most 10,000, have counted down. It is armed for that number by its first use;
    /// another number is an error until it is armed again. Names of latches and barriers are apart from those of locks. See
    /// [`latch`](crate::latch).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let participant = leases.latch("migration", 3).join().await?.joined().expect("the first of three");
    /// assert_eq!(leases.latch("migration", 4).join().await.unwrap_err().kind(), leasehold::ErrorKind::OtherCount);
    /// # participant.leave().await
    /// # }
    /// ```
    pub fn latch(&self, name: impl AsRef<str>, count: u32) -> Latch {
        Latch::new(self.core.clone(), name.as_ref(), count)
    }

    /// A barrier: opens when all of `count` parties, at most 10,000, have arrived, and is armed again at once. See
    /// [`latch`](crate::latch).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let party = leases.barrier("phase", 1).join().await?.joined().expect("the only one");
    /// println!("{:?}", party.arrive().await?);
    /// # party.leave().await
    /// # }
    /// ```
    pub fn barrier(&self, name: impl AsRef<str>, count: u32) -> Barrier {
        Barrier::new(self.core.clone(), name.as_ref(), count)
    }

    /// Makes a detached lock a guard of this process again.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let secret = leases.lock("nightly").acquire().await?.detach().expose();
    /// // Another process reads the file that the secret was kept in.
    /// let guard = leases.attach(secret.parse()?).keep_alive().await?;
    /// assert!(guard.release().await?.was_held());
    /// # leases.close().await
    /// # }
    /// ```
    pub fn attach(&self, handle: Handle) -> Attach {
        Attach::new(self.core.clone(), handle)
    }

    /// Requests of one kind that shall be executed once each, such as `payout`.
    pub fn idempotency(&self, operation: impl AsRef<str>) -> Idempotency {
        Idempotency { core: self.core.clone(), operation: operation.as_ref().to_owned() }
    }

    /// A request whose key a key schema made; a bad key is reported when it is used.
    pub fn idempotency_key(&self, key: Result<Name>) -> IdempotencyKey {
        IdempotencyKey::named(self.core.clone(), key)
    }

    /// Marks of work in progress, such as `processing`.
    pub fn marker(&self, kind: impl AsRef<str>) -> Marker {
        Marker::new(self.core.clone(), kind.as_ref())
    }

    /// Marks whose keys a key schema makes.
    pub fn marker_with(&self, layout: Template, ttl: Duration) -> Marker {
        Marker::laid_out(self.core.clone(), Ok(layout), ttl)
    }

    /// The pool of deadlines of that name.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// use std::time::Duration;
    ///
    /// let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let payments = leases.deadlines("payments");
    /// payments.set_with("tx:42", Duration::ZERO, "order 7").await?;
    /// for due in payments.claim().await? {
    ///     println!("{} should have ended", due.id());
    ///     due.acknowledge().await?;
    /// }
    /// # leases.close().await
    /// # }
    /// ```
    pub fn deadlines(&self, pool: impl AsRef<str>) -> Deadlines {
        Deadlines::new(self.core.clone(), pool.as_ref())
    }

    /// Who holds a lock and who waits for it.
    pub async fn inspect(&self, name: impl AsRef<str>) -> Result<Inspection> {
        let name = self.name(name.as_ref())?;
        let answer = self.core.engine.inspector().inspect(&name, self.core.command_until()).await;
        answer.map_err(|error| self.core.failed(error, "inspecting", &name))
    }

    /// The locks that are held or waited for and whose name begins with `prefix`. A lock that is held from the beginning of
    /// the listing to its end comes exactly once. An error is the last item.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// use futures_util::TryStreamExt;
    ///
    /// let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let guard = leases.lock("deal:42").acquire().await?;
    /// let mut deals = leases.list("deal:");
    /// while let Some(lock) = deals.try_next().await? {
    ///     println!("{} is held: {}", lock.name, lock.held().is_some());
    /// }
    /// # let _ = guard.release().await?;
    /// # leases.close().await
    /// # }
    /// ```
    pub fn list(&self, prefix: impl Into<Arc<str>>) -> BoxStream<'static, Result<Inspection>> {
        let (client, prefix) = (self.clone(), prefix.into());
        all_items(move |from| {
            let (client, prefix) = (client.clone(), prefix.clone());
            async move { client.list_page(&prefix, from, PAGE).await }
        })
    }

    /// One page of [`Client::list`], for callers that keep their own place. A page may be short or
    /// empty although more follow; the last one has no `next`. A lock that is held from the first page to the last is on
    /// exactly one of them, as long as the cursors stay in this process.
    pub async fn list_page(
        &self,
        prefix: &str,
        from: Option<Cursor>,
        limit: u32,
    ) -> Result<Page<Inspection>> {
        self.core.check_open()?;
        between("page size", limit, 1, 10_000)?;
        let (listing, until) = (Listing::at(from), self.core.command_until());
        let page = self.core.engine.inspector().page(prefix, listing.from(), limit, until).await;
        let doing = format!("listing \"{prefix}\"");
        let page = page.map_err(|error| self.core.explain_doing(error, doing, None))?;
        Ok(listing.page(page, limit, |lock| lock.name.as_str()))
    }

    /// The changes of one lock, polled every `poll_every` (10 ms to an hour): a lock that is held for less than that may
    /// not be seen. [`Changes`] says what the items are and what dropping does. Ends when the client is closed.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// use std::time::Duration;
    /// use futures_util::{StreamExt, stream::BoxStream};
    ///
    /// let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let mut changes = leases.watch("deal:42", Duration::from_millis(100))?;
    /// let present = changes.next().await.expect("a first item")?;
    /// assert!(present.is_empty());
    /// let guard = leases.lock("deal:42").acquire().await?;
    /// let acquired = changes.next().await.expect("a change")?;
    /// assert_eq!(acquired[0].now.as_ref().unwrap().fence, guard.fence());
    /// # let _ = guard.release().await?; drop(changes); leases.close().await
    /// # }
    /// ```
    ///
    /// # Errors
    /// `invalid` for a bad name or interval. Faults of the store are items.
    pub fn watch(&self, name: impl AsRef<str>, poll_every: Duration) -> Result<Changes<'_, Error>> {
        self.watching(Watched::Name(self.name(name.as_ref())?), poll_every)
    }

    /// The same for all locks whose name begins with `prefix`.
    pub fn watch_prefix(&self, prefix: &str, poll_every: Duration) -> Result<Changes<'_, Error>> {
        self.watching(Watched::Prefix(prefix.to_owned()), poll_every)
    }

    fn watching(&self, locks: Watched, poll_every: Duration) -> Result<Changes<'_, Error>> {
        let core = &self.core;
        core.check_open()?;
        between("poll interval", poll_every, Duration::from_millis(10), Duration::from_secs(3600))?;
        let command_timeout = core.config.command_timeout;
        let request = Watch { locks, poll_every, command_timeout, clock: core.clock.clone() };
        let changes = core.engine.inspector().watch(request).take_until(core.closing().cancelled_owned());
        Ok(changes
            .then(async |seen| match seen {
                Ok(seen) => Ok(forced::tell_apart(core, seen).await),
                Err(error) => Err(core.explain_doing(error, "watching".into(), None)),
            })
            .boxed())
    }

    /// Takes a lock away from its holder, if it is still the one whose fence was seen. The holder may still be at
    /// work: it learns of it at its next renewal, on a store that reports losses at once, and only a fence check stops its
    /// writes before that. A holder that changed is an outcome: [`Released::Taken`].
    pub async fn force_release(&self, name: impl AsRef<str>, seen: Fence) -> Result<Released> {
        let name = self.name(name.as_ref())?;
        forced::note(&self.core, &name, seen).await;
        let answer = self.core.engine.leases().force_release(&name, seen, self.core.command_until()).await;
        let outcome = answer.map_err(|error| self.core.failed(error, "force-releasing", &name))?;
        tracing::warn!(%name, fence = %seen, ?outcome, "force-released");
        if matches!(outcome, Released::Free | Released::HandedOver { .. }) {
            self.core.keeper.taken(&name, seen);
        }
        Ok(outcome)
    }

    /// What was counted so far.
    pub fn stats(&self) -> Stats {
        self.core.telemetry.stats()
    }

    /// How often this client has asked its store and waited for the answer: calls over the network, transactions of a
    /// file. In a cluster what is asked of several shards at once counts for each. `None` where it is not counted
    /// (`memory:`, `redlock://`).
    pub fn round_trips(&self) -> Option<u64> {
        self.core.engine.round_trips()
    }

    /// What an operator should know about the store.
    pub async fn health(&self) -> Result<Health> {
        self.core.check_open()?;
        let answer = self.core.engine.health(self.core.command_until()).await;
        answer.map_err(|error| self.core.explain_doing(error, "checking its health".into(), None))
    }

    /// What the store can do.
    pub fn capabilities(&self) -> &Capabilities {
        self.core.engine.capabilities()
    }

    /// The store's URL without its password.
    pub fn store(&self) -> &str {
        &self.core.store
    }

    /// Settles what was dropped, then gives back connections and files. Guards that still live are not renewed any
    /// more: release them first.
    ///
    /// # Errors
    /// When something could not be given back in time; it ends with its ttl.
    pub async fn close(&self) -> Result<()> {
        self.core.close().await
    }

    /// The nodes, if the store decides by majority.
    ///
    /// # Errors
    /// `unsupported` for every other store.
    pub fn quorum(&self) -> Result<Members<'_>> {
        let core = &self.core;
        core.check_open()?;
        let what = || format!("asking the store {} for its quorum", core.store);
        let why = "one server or one cluster decides there; a quorum is a redlock:// store";
        let members = core.engine.members().ok_or_else(|| Error::unsupported(what(), why))?;
        Ok(Members { core, members })
    }

    fn name(&self, name: &str) -> Result<Name> {
        self.core.check_open()?;
        let name = Name::new(name)?;
        self.core.check_name(&name)?;
        Ok(name)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("store", &self.core.store).finish_non_exhaustive()
    }
}

/// The nodes of a quorum; made by [`Client::quorum`].
#[derive(Clone, Copy)]
pub struct Members<'a> {
    core: &'a Core,
    members: &'a dyn engine::Members,
}

impl Members<'_> {
    /// Every node, and whether it votes.
    pub async fn list(&self) -> Vec<Member> {
        self.members.list(self.core.command_until()).await
    }

    /// Makes nodes that never were a quorum one, at once. Every node must answer.
    ///
    /// # Errors
    /// When a node does not answer, was changed at the same time, or is part of a quorum already.
    pub async fn admit_new(&self) -> Result<()> {
        self.admit_all(false).await
    }

    /// Makes the nodes a new quorum, at once, whatever they were before. Locks that a majority of them still has stay held.
    /// One that they have lost can be granted again at once, although its holder does not learn of it until its next
    /// renewal: use it only while no lock is held. [`Members::admit`] waits for that instead.
    ///
    /// # Errors
    /// When a node does not answer or was changed at the same time.
    pub async fn replace(&self) -> Result<()> {
        self.admit_all(true).await
    }

    async fn admit_all(&self, over: bool) -> Result<()> {
        let admitted = self.members.admit_new(over, self.core.command_until()).await;
        admitted.map_err(|error| self.core.explain_doing(error, "admitting a new quorum".into(), None))
    }

    /// Readmits nodes that lost their data, also when too few of the others vote to learn from. Begins to watch them;
    /// [`Members::list`] shows the progress.
    ///
    /// # Errors
    /// When no node remembers a quorum.
    pub async fn admit(&self) -> Result<()> {
        let begun = self.members.admit(self.core.command_until()).await;
        begun.map_err(|error| self.core.explain_doing(error, "admitting nodes".into(), None))
    }
}
