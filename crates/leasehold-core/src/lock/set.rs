//! Several locks at once: all of them or none.
//!
//! Nobody waits for one lock while it holds another, so nobody waits in a circle. First all are claimed together, in one step
//! where the store can and otherwise one after the other in the order of their names. If one of them is held by somebody else,
//! what was got is given back, the attempt waits in the queue of that one alone, and then asks for the others again.

use std::{future::IntoFuture, mem::take, pin::Pin, sync::Arc, time::Duration};

use super::{
    Attempt, Lock, RunError,
    attempt::{self, Acquired},
    request::LockRequest,
    run::unless,
};
use crate::{
    clock::BootInstant,
    config::WAIT_MAX,
    core::Core,
    engine::{Acks, AnswerAll, Atomic, Claim, EngineError, Format},
    error::{Error, Result},
    lease::{Bond, Cleanup, Guard, GuardSet, LeaseSet, give_back, validity},
    name::Name,
    owner::Holder,
    telemetry::Count,
};

/// Most locks of one set.
pub const LOCKS_MAX: usize = 64;
/// Longest pause after the first time that locks were given back for another set; doubles each time.
const BACK_OUT_PAUSE: Duration = Duration::from_millis(2);
/// Longest such pause.
const BACK_OUT_PAUSE_MAX: Duration = Duration::from_millis(100);

/// Builder of several locks at once; made by [`Client::lock_all`](crate::Client::lock_all). Awaiting it is the same as
/// [`LockSet::acquire`].
///
/// The locks may be of different kinds. All are held or none is, and nothing is held while it waits. The order in which they
/// are given does not matter: two callers that want the same locks never wait for each other in a circle.
///
/// The wait is that of the whole. The ttl and keep-alive set here are those of every lock; unless set, each lock has its own,
/// and the wait is the longest of them. Each lock keeps its label, lock-delay, acknowledgements, maximum lifetime and minimum
/// hold time.
///
/// Where a caller waits for several locks it may be overtaken: it keeps no place in the queue of a lock while it waits for
/// another one. Not the right tool for a resource that always comes with the same others: give them one name.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let leases = leasehold::Leasehold::connect("memory:").await?;
/// let all = leases.lock_all([leases.lock("account:7"), leases.read_lock("rates"), leases.semaphore("gpu", 4).permits(2)]);
/// let guards = all.keep_alive().acquire().await?;
/// for (name, fence) in guards.fences() {
///     println!("{name} under fence {fence}");
/// }
/// assert!(guards.release().await.was_held());
/// # leases.close().await
/// # }
/// ```
#[derive(Clone)]
#[must_use = "locks do nothing until they are acquired"]
pub struct LockSet {
    core: Arc<Core>,
    locks: Vec<Lock>,
    wait: Option<Duration>,
    ttl: Option<Duration>,
    keep_alive: Option<bool>,
}

/// A lock of a set.
struct Member {
    name: Name,
    request: LockRequest,
    hold_at_least: Duration,
}

/// The one that keeps a set from being complete.
struct Blocked {
    member: usize,
    holder: Option<Holder>,
}

impl LockSet {
    pub(crate) fn new(core: Arc<Core>, locks: Vec<Lock>) -> Self {
        Self { core, locks, wait: None, ttl: None, keep_alive: None }
    }

    /// How long to wait for all of them; zero asks once.
    pub fn wait(self, wait: Duration) -> Self {
        Self { wait: Some(wait), ..self }
    }

    /// Waits as long as it takes.
    pub fn wait_forever(self) -> Self {
        self.wait(WAIT_MAX)
    }

    /// How long each lease lasts.
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { ttl: Some(ttl), ..self }
    }

    /// Renews all leases, every third of their ttl, until they are released or one of them is lost.
    pub fn keep_alive(self) -> Self {
        Self { keep_alive: Some(true), ..self }
    }

    /// Renews none of them, not even in [`LockSet::run`].
    pub fn without_keep_alive(self) -> Self {
        Self { keep_alive: Some(false), ..self }
    }

    /// Waits until all locks are free at the same time.
    ///
    /// # Cancel safety
    /// Dropping the future gives back, in the background, what was granted, and leaves the queue.
    ///
    /// # Errors
    /// `timed_out`, with the name of a lock that was not free in time; `invalid` for no lock, for more than [`LOCKS_MAX`], for
    /// a name that comes twice, and for locks of another client; the errors of [`Lock::acquire`]. Nothing is held then.
    pub async fn acquire(self) -> Result<GuardSet> {
        let set = self.checked()?;
        Box::pin(set.acquire()).await
    }

    /// Asks once and does not wait. [`Attempt::Busy`] has the holder of one that is not free.
    ///
    /// # Cancel safety
    /// Dropping the future gives back, in the background, what may have been granted.
    ///
    /// # Errors
    /// As [`LockSet::acquire`], except that a held lock is [`Attempt::Busy`] and not an error.
    pub async fn try_acquire(self) -> Result<Attempt<GuardSet>> {
        let set = self.checked()?;
        Ok(match Box::pin(set.ask(None)).await? {
            Ok(guards) => Attempt::Held(guards),
            Err((back, Blocked { member, holder })) => {
                give_back(back).await;
                let retry = &set.members[member].request.retry;
                Attempt::Busy { holder, retry_after: retry.pause(0, set.core.entropy.fraction()) }
            }
        })
    }

    /// Runs `body` while holding all locks, kept alive unless [`LockSet::without_keep_alive`]. When one of them can no longer be
    /// trusted the body is cancelled. All are given back, also when the body panics.
    ///
    /// # Cancel safety
    /// Dropping the future drops the body and gives the locks back in the background.
    ///
    /// # Errors
    /// [`RunError::Lost`], with the lock that was lost first, when that was before the body ended; [`RunError::NotRun`] when
    /// the locks were not acquired.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let both = leases.lock_all([leases.lock("account:7"), leases.lock("account:8")]);
    /// let moved = both.run(async |leases| {
    ///     println!("from {:?} to {:?}", leases.fence_of("account:7"), leases.fence_of("account:8"));
    ///     100
    /// });
    /// assert_eq!(moved.await?, 100);
    /// # Ok(()) }
    /// ```
    pub async fn run<T>(self, body: impl AsyncFnOnce(LeaseSet) -> T) -> Result<T, RunError<T>> {
        let guards = self.acquire_for_run().await.map_err(RunError::NotRun)?;
        let leases = guards.lease_set();
        let ended = unless(leases.lost(), body(leases.clone())).await;
        guards.settle(ended).await
    }

    /// [`LockSet::acquire`], kept alive unless [`LockSet::without_keep_alive`].
    ///
    /// # Errors
    /// As [`LockSet::acquire`].
    pub async fn acquire_for_run(mut self) -> Result<GuardSet> {
        self.keep_alive.get_or_insert(true);
        self.acquire().await
    }

    fn checked(self) -> Result<CheckedSet> {
        let Self { core, locks, wait, ttl, keep_alive } = self;
        if locks.is_empty() || locks.len() > LOCKS_MAX {
            let expected = format!("1 to {LOCKS_MAX}");
            return Err(Error::invalid("number of locks", locks.len().to_string(), expected));
        }
        let wait =
            wait.unwrap_or_else(|| locks.iter().map(|lock| lock.request.wait).max().unwrap_or_default());
        let mut members = Vec::with_capacity(locks.len());
        for mut lock in locks {
            let request = &mut lock.request;
            (request.wait, request.max_attempts) = (wait, None);
            request.ttl = ttl.unwrap_or(request.ttl);
            request.keep_alive = keep_alive.or(request.keep_alive);
            let name = lock.checked()?;
            if !Arc::ptr_eq(&lock.core, &core) {
                let expected = "locks of the client that acquires them together";
                return Err(Error::invalid("set of locks", name.as_str(), expected));
            }
            // What is given back for another set is not to stay closed.
            let hold_at_least = take(&mut lock.request.hold_at_least);
            members.push(Member { name, request: lock.request, hold_at_least });
        }
        members.sort_by(|one, other| one.name.cmp(&other.name));
        if let Some((one, other)) =
            members.iter().zip(&members[1..]).find(|(one, other)| one.name == other.name)
        {
            let (a, b) = (one.request.mode(), other.request.mode());
            let twice = if a == b { String::new() } else { format!(", not as {a} and as {b}") };
            return Err(Error::invalid("set of locks", one.name.as_str(), format!("each name once{twice}")));
        }
        let began = core.clock.now();
        Ok(CheckedSet { core, members, began, until: began + wait })
    }
}

impl IntoFuture for LockSet {
    type Output = Result<GuardSet>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.acquire())
    }
}

/// Locks in the order of their names, each name once.
struct CheckedSet {
    core: Arc<Core>,
    members: Vec<Member>,
    began: BootInstant,
    until: BootInstant,
}

/// A set that is complete, or what is to be given back because of another one.
type Asked = std::result::Result<GuardSet, (Vec<Guard>, Blocked)>;

impl CheckedSet {
    async fn acquire(self) -> Result<GuardSet> {
        let (mut first, mut asked, mut backed_out) = (None, 0, 0);
        loop {
            let (back, blocked) = match self.ask(first).await? {
                Ok(guards) => return Ok(guards),
                Err(refused) => refused,
            };
            asked += 1;
            let has_backed_out = !back.is_empty();
            give_back(back).await;
            if has_backed_out {
                // Two that gave way to each other do not come back together.
                let most = BACK_OUT_PAUSE.saturating_mul(1 << backed_out).min(BACK_OUT_PAUSE_MAX);
                backed_out = (backed_out + 1).min(16);
                let pause = most.mul_f64(self.core.entropy.fraction());
                self.core.clock.sleep_until((self.core.clock.now() + pause).min(self.until)).await;
            }
            let now = self.core.clock.now();
            if now >= self.until {
                let (name, waited) = (self.members[blocked.member].name.clone(), now.since(self.began));
                return Err(Error::TimedOut { name, waited, attempts: asked, holder: blocked.holder });
            }
            first = Some(blocked.member);
        }
    }

    /// Waits for the first one, if there is one to be waited for, and asks once for all others.
    async fn ask(&self, first: Option<usize>) -> Result<Asked> {
        let mut guards: Vec<Option<Guard>> = self.members.iter().map(|_| None).collect();
        let bond = Arc::<Bond>::default();
        if let Some(first) = first {
            let Member { name, request, .. } = &self.members[first];
            let wait = self.until.since(self.core.clock.now());
            let request = LockRequest { wait, ..request.bonded(&bond) };
            guards[first] = Some(attempt::wait_for(&self.core, name.clone(), &request).await?);
        }
        let rest: Vec<_> = (0..guards.len()).filter(|member| Some(*member) != first).collect();
        // Claims that wait for replicas, and locks in another format, go one by one.
        let is_plain =
            |member: &Member| member.request.acks == Acks::None && member.request.format == Format::Plain;
        let is_atomic =
            self.core.engine.capabilities().claim_all == Atomic::Store && self.members.iter().all(is_plain);
        let blocked = if rest.is_empty() {
            None
        } else if is_atomic {
            self.claim_all(&rest, &bond, &mut guards).await?
        } else {
            self.claim_in_order(&rest, &bond, &mut guards).await?
        };
        let guards: Vec<_> = guards.into_iter().flatten().collect();
        if let Some(blocked) = blocked {
            return Ok(Err((guards, blocked)));
        }
        Ok(self.complete(guards, bond))
    }

    /// One guard of all, unless one of them has been lost while the others were asked for.
    fn complete(&self, mut guards: Vec<Guard>, bond: Arc<Bond>) -> Asked {
        if let Some(member) = guards.iter().position(|guard| !guard.is_held()) {
            return Err((guards, Blocked { member, holder: None }));
        }
        for (guard, member) in guards.iter_mut().zip(&self.members) {
            guard.set_hold_at_least(member.hold_at_least);
        }
        Ok(GuardSet::new(guards, bond))
    }

    async fn claim_in_order(
        &self,
        rest: &[usize],
        bond: &Arc<Bond>,
        guards: &mut [Option<Guard>],
    ) -> Result<Option<Blocked>> {
        for &member in rest {
            let Member { name, request, .. } = &self.members[member];
            match attempt::ask_once(&self.core, name.clone(), &request.bonded(bond)).await? {
                Attempt::Held(guard) => guards[member] = Some(guard),
                Attempt::Busy { holder, .. } => return Ok(Some(Blocked { member, holder })),
            }
        }
        Ok(None)
    }

    async fn claim_all(
        &self,
        rest: &[usize],
        bond: &Arc<Bond>,
        guards: &mut [Option<Guard>],
    ) -> Result<Option<Blocked>> {
        let core = &self.core;
        let began = core.clock.now();
        let claims = rest.iter().map(|member| self.members[*member].claim(core, began)).collect();
        let mut owed = Owed { set: self, rest, claims, ended_as: Count::cancelled, is_owed: true };
        let answer = core.engine.leases().claim_all(&owed.claims, core.command_until()).await;
        let at = core.clock.now();
        match answer {
            Ok(AnswerAll::Granted(grants)) => {
                if !grants.iter().all(|grant| validity::is_worth_having(grant, at)) {
                    return Err(owed.failed(EngineError::too_slow()));
                }
                owed.is_owed = false;
                for ((member, claim), grant) in rest.iter().zip(take(&mut owed.claims)).zip(grants) {
                    let acquired = Acquired { grant, handed_over: false, at };
                    guards[*member] = Some(acquired.guard(
                        core,
                        &self.members[*member].request.bonded(bond),
                        &claim,
                        began,
                    ));
                }
                Ok(None)
            }
            Ok(AnswerAll::Busy { claim, holders }) => {
                (owed.ended_as, owed.is_owed) = (Count::refused, false);
                let member = rest[claim];
                self.members[member].request.telemetry(core).count(Count::contended);
                Ok(Some(Blocked { member, holder: holders.into_first() }))
            }
            Err(error) => Err(owed.failed(error)),
        }
    }
}

impl Member {
    fn claim(&self, core: &Core, began: BootInstant) -> Claim {
        let Self { name, request, .. } = self;
        request.telemetry(core).count(Count::attempts);
        let (owner, mode) = (core.new_owner(&request.label, began), request.mode());
        let &LockRequest { format, ttl, lock_delay, acks, .. } = request;
        Claim { name: name.clone(), owner, mode, format, ttl, lock_delay, queue: None, acks }
    }
}

/// What a claim of several locks owes the store: dropped before it was settled, it ends all attempts in the background.
struct Owed<'a> {
    set: &'a CheckedSet,
    rest: &'a [usize],
    /// Those without a guard.
    claims: Vec<Claim>,
    /// How they are counted.
    ended_as: Count,
    is_owed: bool,
}

impl Owed<'_> {
    fn failed(&mut self, error: EngineError) -> Error {
        self.ended_as = Count::failed;
        let names: Vec<_> = self.claims.iter().map(|claim| claim.name.as_str()).collect();
        let doing = format!("acquiring \"{}\" together", names.join("\", \""));
        let error = self.set.core.explain_doing(error, doing, Some(&self.claims[0].name));
        self.set.core.report(&error, &self.claims[0].name);
        error
    }
}

impl Drop for Owed<'_> {
    fn drop(&mut self) {
        for (claim, member) in take(&mut self.claims).into_iter().zip(self.rest) {
            self.set.members[*member].request.telemetry(&self.set.core).count(self.ended_as);
            if self.is_owed {
                self.set.core.reaper.spawn(Cleanup::Abandon(claim));
            }
        }
    }
}
