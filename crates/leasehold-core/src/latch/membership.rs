//! Taking part: the lease of a participant, and what it owes the store.

use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{Join, wait};
use crate::{
    config::check_label,
    core::Core,
    engine::{
        EngineError, Fault, Grant, Hold,
        latches::{Answer, Kind, Op, PARTIES_MAX, Request, Said, Standing},
    },
    error::{Error, Result},
    fence::Fence,
    lease::{Cleanup, Lease, Terms},
    name::Name,
};

/// Pause before a store that could not be reached is asked again.
const OUTAGE_PAUSE: Duration = Duration::from_millis(50);

/// What a latch or a barrier is, as its caller says.
#[derive(Clone)]
pub(super) struct Spec {
    pub(super) core: Arc<Core>,
    // What is wrong is reported when it is used, so that the builder reads as one sentence.
    name: Result<Name>,
    kind: Kind,
    count: u32,
    ttl: Duration,
    label: String,
}

impl Spec {
    pub(super) fn new(core: Arc<Core>, kind: Kind, name: &str, count: u32) -> Self {
        let (name, ttl) = (Name::new(name), core.config.ttl);
        Self { core, name, kind, count, ttl, label: String::new() }
    }

    pub(super) fn with_ttl(self, ttl: Duration) -> Self {
        Self { ttl, ..self }
    }

    pub(super) fn with_label(self, label: String) -> Self {
        Self { label, ..self }
    }

    pub(super) fn name(&self) -> Result<Name> {
        self.core.check_open()?;
        let name = self.name.clone()?;
        self.core.check_name(&name)?;
        Ok(name)
    }

    /// A request under a new owner value.
    pub(super) fn request(&self, op: Op) -> Result<Request> {
        let (name, kind) = (self.name()?, self.kind);
        let about = |error: Error| error.about(format!("the {} \"{name}\"", kind.as_str()));
        let expected = || format!("1 to {PARTIES_MAX} parties");
        let count = NonZeroU32::new(self.count).filter(|count| count.get() <= PARTIES_MAX);
        let count =
            count.ok_or_else(|| about(Error::invalid("count", self.count.to_string(), expected())))?;
        check_label(&self.label).map_err(about)?;
        let owner = self.core.new_owner(&self.label, self.core.clock.now());
        Ok(Request { name: name.clone(), kind, count, owner, op })
    }

    pub(super) async fn ask(&self, op: Op, doing: &str) -> Result<Answer> {
        ask(&self.core, &self.request(op)?, doing, &mut false).await
    }

    pub(super) async fn join(&self) -> Result<Join<Membership>> {
        self.core.config.check_ttl(self.ttl)?;
        let request = self.request(Op::Join { ttl: self.ttl })?;
        let hold = request.hold(0, self.ttl);
        let leave = Request { op: Op::Leave { breaks: false }, ..request.clone() };
        let mut joining = Joining { core: &self.core, leave, hold, owed: false };
        let since = self.core.clock.now();
        let answer = ask(&self.core, &request, "joining", &mut joining.owed).await?;
        joining.owed = matches!(answer.said, Said::Joined);
        let generation = answer.generation;
        Ok(match answer.said {
            Said::Joined => {
                joining.owed = false;
                let grant = Grant { fence: Fence::new(generation), since, ttl: self.ttl, acks: 0 };
                Join::Joined(Membership::new(&self.core, request, grant))
            }
            Said::Full => Join::Full { generation },
            Said::Stands(Standing::Opened) => Join::Opened { generation },
            Said::Stands(Standing::Broken { who }) => Join::Broken { generation, who },
            said => return Err(self.core.failed(unexpected(&said), "joining", &request.name)),
        })
    }
}

/// An attempt to take part, and what it owes the store: dropped before it was answered, it leaves in the background.
struct Joining<'a> {
    core: &'a Core,
    leave: Request,
    hold: Hold,
    owed: bool,
}

impl Drop for Joining<'_> {
    fn drop(&mut self) {
        if self.owed {
            self.core.reaper.spawn(Cleanup::Leave(Box::new((self.leave.clone(), self.hold.clone()))));
        }
    }
}

/// Asks, and asks again if there is no answer, for as long as one command may take: the same request counts once. `owed` is
/// whether it may have had an effect.
pub(super) async fn ask(core: &Core, request: &Request, doing: &str, owed: &mut bool) -> Result<Answer> {
    core.check_open()?;
    let latches = core.latches()?;
    let until = core.command_until();
    loop {
        let owed_before = std::mem::replace(owed, true);
        let error = match latches.ask(request, until).await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        *owed = owed_before || error.fault == Fault::NoAnswer;
        let again = core.clock.now() + OUTAGE_PAUSE.mul_f64(0.5 + core.entropy.fraction());
        if !matches!(error.fault, Fault::Unreachable | Fault::NoAnswer) || again >= until {
            return Err(core.failed(error, doing, &request.name));
        }
        core.clock.sleep_until(again).await;
    }
}

/// An answer to another question.
pub(super) fn unexpected(said: &Said) -> EngineError {
    EngineError::new(Fault::Unsupported, format!("the store answered {said:?}"))
}

/// A participant, kept alive until it leaves or needs no lease any more.
pub(super) struct Membership {
    pub(super) lease: Lease,
    leave: Request,
    /// Whether it still has to leave when it is dropped.
    owed: AtomicBool,
}

impl Membership {
    fn new(core: &Arc<Core>, request: Request, grant: Grant) -> Self {
        let (telemetry, now) = (core.telemetry.clone(), core.clock.now());
        let terms = Terms { keep_alive: true, max_lifetime: None, handed_over: false, telemetry, bond: None };
        let hold = request.hold(grant.fence.get(), grant.ttl);
        tracing::debug!(name = %request.name, generation = %grant.fence, "joined");
        let lease = Lease::begin(core, hold, &grant, terms, now);
        let leave = Request { op: Op::Leave { breaks: true }, ..request };
        Self { lease, leave, owed: AtomicBool::new(true) }
    }

    pub(super) fn name(&self) -> &Name {
        &self.leave.name
    }

    /// The generation that it joined.
    pub(super) fn joined(&self) -> u64 {
        self.lease.fence().get()
    }

    pub(super) async fn count_down(&self, generation: u64) -> Result<Answer> {
        let request = Request { op: Op::CountDown { generation }, ..self.leave.clone() };
        ask(&self.lease.core, &request, "counting down", &mut false).await
    }

    /// From here on it needs no lease, and dropping it changes nothing.
    pub(super) fn end(&self) {
        self.owed.store(false, Ordering::Release);
        self.lease.end();
    }

    pub(super) async fn leave(mut self, breaks: bool) -> Result<()> {
        self.leave.op = Op::Leave { breaks };
        self.lease.end();
        ask(&self.lease.core, &self.leave, "leaving", &mut false).await?;
        self.end();
        Ok(())
    }

    pub(super) async fn wait(&self, generation: u64, timeout: Duration) -> Result<wait::Waited> {
        let core = &self.lease.core;
        let owner = core.another_owner(&self.leave.owner);
        let op = Op::Look { generation: Some(generation), wake: true };
        wait::wait(core, Request { owner, op, ..self.leave.clone() }, timeout).await
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.lease.end();
        if *self.owed.get_mut() {
            let cleanup = Cleanup::Leave(Box::new((self.leave.clone(), self.lease.state.hold.clone())));
            self.lease.core.reaper.spawn(cleanup);
        }
    }
}
