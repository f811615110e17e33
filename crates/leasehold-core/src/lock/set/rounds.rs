//! How the locks of a set are claimed.
//!
//! First all together, in one step where the store can and otherwise one after the other in the order of their names. If one of
//! them is held by somebody else, what was got is given back, the attempt waits in the queue of that one alone, and then asks
//! for the others again. Where many want the same locks, that alone would hardly ever succeed: whoever has waited for one
//! mostly finds another one held. So every second round waits for one after the other in the order of their names, while it
//! holds those before: nobody waits in a circle, since all go in the same order. Those who did not wait for it are kept from
//! what it holds for a short time only.

use std::{mem::take, sync::Arc, time::Duration};

use super::super::{
    Attempt,
    attempt::{self, Acquired},
    request::LockRequest,
};
use crate::{
    clock::BootInstant,
    core::Core,
    engine::{Acks, AnswerAll, Atomic, Claim, EngineError, Fault, Format},
    error::{Error, Result},
    lease::{Bond, Cleanup, Guard, GuardSet, give_back, validity},
    name::Name,
    owner::Holder,
    telemetry::Count,
};

/// Longest pause after the first time that locks were given back for another set; doubles each time.
const BACK_OUT_PAUSE: Duration = Duration::from_millis(2);
/// Longest such pause.
const BACK_OUT_PAUSE_MAX: Duration = Duration::from_millis(100);
/// Longest that a set holds some of its locks while it waits for others.
const STEP_MAX: Duration = Duration::from_millis(500);

/// A lock of a set.
pub(super) struct Member {
    pub(super) name: Name,
    pub(super) request: LockRequest,
    pub(super) hold_at_least: Duration,
}

/// The one that keeps a set from being complete.
pub(super) struct Blocked {
    pub(super) member: usize,
    pub(super) holder: Option<Holder>,
}

/// Locks in the order of their names, each name once.
pub(super) struct CheckedSet {
    pub(super) core: Arc<Core>,
    pub(super) members: Vec<Member>,
    pub(super) began: BootInstant,
    pub(super) until: BootInstant,
}

/// A set that is complete, or what is to be given back because of another one.
type Asked = std::result::Result<GuardSet, (Vec<Guard>, Blocked)>;

/// How a set asks for its locks.
#[derive(Clone, Copy)]
pub(super) enum Round {
    /// For all at once.
    Together,
    /// Waits for this one while it holds no other, then asks once for the others.
    After(usize),
    /// Waits for the first while it holds no other, and then for one after the other, for a short time in all.
    InOrder,
}

impl CheckedSet {
    pub(super) async fn acquire(self) -> Result<GuardSet> {
        let (mut round, mut asked, mut backed_out) = (Round::Together, 0, 0);
        loop {
            let (back, blocked) = match self.ask(round).await? {
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
            round = match round {
                Round::After(_) => Round::InOrder,
                Round::Together | Round::InOrder => Round::After(blocked.member),
            };
        }
    }

    pub(super) async fn ask(&self, round: Round) -> Result<Asked> {
        let mut guards: Vec<Option<Guard>> = self.members.iter().map(|_| None).collect();
        let bond = Arc::<Bond>::default();
        let blocked = match round {
            Round::Together => self.claim_others(None, &bond, &mut guards).await?,
            Round::After(first) => match self.wait_for(first, self.until, &bond, &mut guards).await? {
                None => self.claim_others(Some(first), &bond, &mut guards).await?,
                blocked => blocked,
            },
            Round::InOrder => self.wait_in_order(&bond, &mut guards).await?,
        };
        let guards: Vec<_> = guards.into_iter().flatten().collect();
        match blocked {
            Some(blocked) => Ok(Err((guards, blocked))),
            None => Ok(self.complete(guards, bond)),
        }
    }

    async fn wait_in_order(&self, bond: &Arc<Bond>, guards: &mut [Option<Guard>]) -> Result<Option<Blocked>> {
        let shortest_ttl = self.members.iter().map(|member| member.request.ttl).min().unwrap_or_default();
        let mut until = self.until;
        for member in 0..self.members.len() {
            let blocked = self.wait_for(member, until, bond, guards).await?;
            if blocked.is_some() {
                return Ok(blocked);
            }
            if member == 0 {
                until = self.until.min(self.core.clock.now() + STEP_MAX.min(shortest_ttl / 4));
            }
        }
        Ok(None)
    }

    async fn wait_for(
        &self,
        member: usize,
        until: BootInstant,
        bond: &Arc<Bond>,
        guards: &mut [Option<Guard>],
    ) -> Result<Option<Blocked>> {
        let Member { name, request, .. } = &self.members[member];
        let request = LockRequest { wait: until.since(self.core.clock.now()), ..request.bonded(bond) };
        // The end of a step is not the end of the wait.
        let too_late = if until < self.until { Count::refused } else { Count::timed_out };
        match attempt::wait_for(&self.core, name.clone(), &request, too_late).await {
            Ok(guard) => guards[member] = Some(guard),
            Err(Error::TimedOut { holder, .. }) => return Ok(Some(Blocked { member, holder })),
            // A step may be too short for an answer. A store that is out of reach fails the next round.
            Err(Error::StoreUnreachable { .. }) if until < self.until => {
                return Ok(Some(Blocked { member, holder: None }));
            }
            Err(error) => return Err(error),
        }
        Ok(None)
    }

    /// Asks once for all but the one that is held already.
    async fn claim_others(
        &self,
        held: Option<usize>,
        bond: &Arc<Bond>,
        guards: &mut [Option<Guard>],
    ) -> Result<Option<Blocked>> {
        let rest: Vec<_> = (0..guards.len()).filter(|member| Some(*member) != held).collect();
        // Claims that wait for replicas, and locks in another format, go one by one.
        let is_plain =
            |member: &Member| member.request.acks == Acks::None && member.request.format == Format::Plain;
        let is_atomic =
            self.core.engine.capabilities().claim_all == Atomic::Store && self.members.iter().all(is_plain);
        if rest.is_empty() {
            Ok(None)
        } else if is_atomic {
            self.claim_all(&rest, bond, guards).await
        } else {
            self.claim_in_order(&rest, bond, guards).await
        }
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
            Ok(AnswerAll::Refused { claim, error }) => {
                owed.is_owed = false;
                Err(owed.refused(claim, error))
            }
            // This client has too much under way: nothing was sent, and its turn comes.
            Err(EngineError { fault: Fault::Busy, .. }) => {
                (owed.ended_as, owed.is_owed) = (Count::refused, false);
                Ok(Some(Blocked { member: rest[0], holder: None }))
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
        self.refused(0, error)
    }

    /// `error` is about the name of the claim in this place.
    fn refused(&mut self, place: usize, error: EngineError) -> Error {
        self.ended_as = Count::failed;
        let names: Vec<_> = self.claims.iter().map(|claim| claim.name.as_str()).collect();
        let doing = format!("acquiring \"{}\" together", names.join("\", \""));
        let name = &self.claims[place].name;
        let error = self.set.core.explain_doing(error, doing, Some(name));
        self.set.core.report(&error, name);
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
