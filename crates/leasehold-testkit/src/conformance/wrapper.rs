//! An engine that wraps another one, so that a fault overrides a single method.

mod deadlines;
mod latches;
mod records;

use std::{
    num::NonZeroU32,
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use leasehold::{
    Fence, Holder, Name,
    clock::BootInstant,
    clock::Until,
    engine::{
        Answer, AnswerAll, Capabilities, Claim, Converted, Cursor, Engine, EngineError, Fut, Grant, HandedTo,
        Health, Hold, Inspect, Inspection, Leases, LinkChange, LossHint, Members, Mode, Page, Released,
        Renewed, Wake, WakeSink,
        deadlines::{Deadlines, Pool, Receipt, Settle as SettleDeadline},
        latches::{Answer as LatchAnswer, Latches, Request},
        records::{Records, Settle, Settled},
    },
    owner::OwnerId,
};

/// What a wrapper does differently. Every method passes through unless it is overridden.
pub trait Tamper: Send + Sync + 'static {
    /// Called before every call; an error becomes its result.
    fn before(&self) -> Result<(), EngineError> {
        Ok(())
    }

    /// Sees every grant: the answer to a claim as well as a hand-over.
    fn grant(&self, owner: OwnerId, grant: Grant) -> Grant {
        let _ = owner;
        grant
    }

    /// [`Leases::claim`]
    fn claim<'a>(&'a self, inner: &'a dyn Leases, claim: &'a Claim, until: Until) -> Fut<'a, Answer> {
        inner.claim(claim, until)
    }

    /// [`Leases::renew`]
    fn renew<'a>(
        &'a self,
        inner: &'a dyn Leases,
        holds: &'a [Hold],
        until: Until,
    ) -> Fut<'a, Vec<Result<Renewed, EngineError>>> {
        inner.renew(holds, until)
    }

    /// [`Leases::release`]
    fn release<'a>(&'a self, inner: &'a dyn Engine, hold: &'a Hold, until: Until) -> Fut<'a, Released> {
        inner.leases().release(hold, until)
    }

    /// [`Records::settle`]
    fn settle<'a>(&'a self, inner: &'a dyn Records, settle: &'a Settle, until: Until) -> Fut<'a, Settled> {
        inner.settle(settle, until)
    }

    /// [`Latches::ask`]
    fn ask<'a>(&'a self, inner: &'a dyn Latches, request: &'a Request, until: Until) -> Fut<'a, LatchAnswer> {
        inner.ask(request, until)
    }

    /// [`Deadlines::settle`]
    fn settle_deadlines<'a>(
        &'a self,
        inner: &'a dyn Deadlines,
        pool: &'a Pool,
        settlements: &'a [(Receipt, SettleDeadline)],
        until: Until,
    ) -> Fut<'a, Vec<bool>> {
        inner.settle(pool, settlements, until)
    }
}

/// An engine that delegates to another one, except where its [`Tamper`] overrides a method.
pub struct Wrapped<T> {
    inner: Arc<dyn Engine>,
    tamper: Arc<T>,
    sink: OnceLock<Arc<Sink<T>>>,
}

impl<T: Tamper> Wrapped<T> {
    /// Wraps an engine.
    pub fn new(inner: Arc<dyn Engine>, tamper: T) -> Self {
        Self { inner, tamper: Arc::new(tamper), sink: OnceLock::new() }
    }

    fn pass<'a, O: Send + 'a>(&'a self, call: impl FnOnce(&'a dyn Engine) -> Fut<'a, O>) -> Fut<'a, O> {
        match self.tamper.before() {
            Ok(()) => call(&*self.inner),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }
}

/// Sits between the inner engine and the client, for grants by hand-over.
struct Sink<T> {
    tamper: Arc<T>,
    client: Weak<dyn WakeSink>,
}

impl<T: Tamper> WakeSink for Sink<T> {
    fn wake(&self, wake: Wake) {
        let Some(client) = self.client.upgrade() else { return };
        client.wake(match wake {
            Wake::Granted { owner, fence, link } => {
                let since = BootInstant::from_nanos(0);
                let grant = Grant { fence, since, ttl: Duration::ZERO, acks: 0 };
                Wake::Granted { owner, fence: self.tamper.grant(owner, grant).fence, link }
            }
            other => other,
        });
    }

    fn may_be_lost(&self, hint: LossHint) {
        if let Some(client) = self.client.upgrade() {
            client.may_be_lost(hint);
        }
    }

    fn link(&self, change: LinkChange) {
        if let Some(client) = self.client.upgrade() {
            client.link(change);
        }
    }
}

impl<T: Tamper> Engine for Wrapped<T> {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn leases(&self) -> &dyn Leases {
        self
    }

    fn records(&self) -> Result<&dyn Records, &'static str> {
        self.inner.records().map(|_| self as &dyn Records)
    }

    fn deadlines(&self) -> Result<&dyn Deadlines, &'static str> {
        self.inner.deadlines().map(|_| self as &dyn Deadlines)
    }

    fn latches(&self) -> Result<&dyn Latches, &'static str> {
        self.inner.latches().map(|_| self as &dyn Latches)
    }

    fn round_trips(&self) -> Option<u64> {
        self.inner.round_trips()
    }

    fn inspector(&self) -> &dyn Inspect {
        self
    }

    fn members(&self) -> Option<&dyn Members> {
        self.inner.members()
    }

    fn set_wake_sink(&self, client: Weak<dyn WakeSink>) {
        let sink = self.sink.get_or_init(|| Arc::new(Sink { tamper: self.tamper.clone(), client }));
        let sink: Arc<dyn WakeSink> = sink.clone();
        self.inner.set_wake_sink(Arc::downgrade(&sink));
    }

    fn connect(&self, until: Until) -> Fut<'_, ()> {
        self.pass(|inner| inner.connect(until))
    }

    fn health(&self, until: Until) -> Fut<'_, Health> {
        self.pass(|inner| inner.health(until))
    }

    fn close(&self, until: Until) -> Fut<'_, ()> {
        self.inner.close(until)
    }
}

impl<T: Tamper> Leases for Wrapped<T> {
    fn claim<'a>(&'a self, claim: &'a Claim, until: Until) -> Fut<'a, Answer> {
        let answer = self.pass(|inner| self.tamper.claim(inner.leases(), claim, until));
        Box::pin(async move {
            Ok(match answer.await? {
                Answer::Granted(grant) => Answer::Granted(self.tamper.grant(claim.owner.id(), grant)),
                other => other,
            })
        })
    }

    fn claim_all<'a>(&'a self, claims: &'a [Claim], until: Until) -> Fut<'a, AnswerAll> {
        let answer = self.pass(|inner| inner.leases().claim_all(claims, until));
        Box::pin(async move {
            Ok(match answer.await? {
                AnswerAll::Granted(grants) => {
                    let seen = claims.iter().zip(grants);
                    AnswerAll::Granted(
                        seen.map(|(claim, grant)| self.tamper.grant(claim.owner.id(), grant)).collect(),
                    )
                }
                busy => busy,
            })
        })
    }

    fn shard_of(&self, hold: &Hold) -> u64 {
        self.inner.leases().shard_of(hold)
    }

    fn reports_loss(&self, hold: &Hold) -> bool {
        self.inner.leases().reports_loss(hold)
    }

    fn held_key(&self, hold: &Hold) -> Option<String> {
        self.inner.leases().held_key(hold)
    }

    fn renew<'a>(&'a self, holds: &'a [Hold], until: Until) -> Fut<'a, Vec<Result<Renewed, EngineError>>> {
        self.pass(|inner| self.tamper.renew(inner.leases(), holds, until))
    }

    fn release<'a>(&'a self, hold: &'a Hold, until: Until) -> Fut<'a, Released> {
        self.pass(|inner| self.tamper.release(inner, hold, until))
    }

    fn convert<'a>(&'a self, hold: &'a Hold, to: Mode, until: Until) -> Fut<'a, Converted> {
        self.pass(|inner| inner.leases().convert(hold, to, until))
    }

    fn hand_to<'a>(&'a self, hold: &'a Hold, next: &'a Holder, until: Until) -> Fut<'a, HandedTo> {
        self.pass(|inner| inner.leases().hand_to(hold, next, until))
    }

    fn set_limit<'a>(&'a self, name: &'a Name, limit: NonZeroU32, until: Until) -> Fut<'a, ()> {
        self.pass(|inner| inner.leases().set_limit(name, limit, until))
    }

    fn abandon<'a>(&'a self, claim: &'a Claim, until: Until) -> Fut<'a, ()> {
        self.pass(|inner| inner.leases().abandon(claim, until))
    }

    fn force_release<'a>(&'a self, name: &'a Name, seen: Fence, until: Until) -> Fut<'a, Released> {
        self.pass(|inner| inner.leases().force_release(name, seen, until))
    }
}

impl<T: Tamper> Inspect for Wrapped<T> {
    fn inspect<'a>(&'a self, name: &'a Name, until: Until) -> Fut<'a, Inspection> {
        self.pass(|inner| inner.inspector().inspect(name, until))
    }

    fn page<'a>(
        &'a self,
        prefix: &'a str,
        from: Option<Cursor>,
        limit: u32,
        until: Until,
    ) -> Fut<'a, Page<Inspection>> {
        self.pass(|inner| inner.inspector().page(prefix, from, limit, until))
    }
}
