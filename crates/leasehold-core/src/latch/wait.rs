//! Waiting for a generation: woken by the store, and asking from time to time in case a wake-up was lost.

use std::{sync::Arc, time::Duration};

use super::membership::unexpected;
use crate::{
    clock::{BootInstant, Until},
    config::check_wait,
    core::Core,
    engine::{
        EngineError, Fault,
        latches::{Op, Request, Said, Standing},
    },
    error::{Refusal, Result},
};

/// Longest time between two polls, on average: a wake-up may have been lost.
const FAR_POLL: Duration = Duration::from_secs(5);
/// After a lease has ended, the store must be asked to find out.
const NEAR_POLL: Duration = Duration::from_millis(2);
/// Those who wait for a dead participant do not all poll at the same moment.
const SPREAD: Duration = Duration::from_millis(50);
/// Pause before a store that could not be reached is asked again.
const OUTAGE_PAUSE: Duration = Duration::from_millis(50);

/// How a generation stood in the end.
pub(super) struct Waited {
    pub(super) generation: u64,
    pub(super) standing: Standing,
    /// The present generation.
    pub(super) present: u64,
}

/// Waits until a generation is open or broken, or the time is over. Of a request that names none, the one that it finds. A store
/// that does not answer gets as much time as one command.
pub(super) async fn wait(core: &Arc<Core>, request: Request, timeout: Duration) -> Result<Waited> {
    check_wait(timeout)?;
    core.check_open()?;
    let Op::Look { generation, .. } = request.op else { unreachable!("only looks wait") };
    let began = core.clock.now();
    let until = began + timeout;
    let answer_until = until.max(began + core.config.command_timeout);
    let is_once = timeout.is_zero();
    Waiter { core, request, generation, is_once, until, answer_until, seen: None }.wait().await
}

struct Waiter<'a> {
    core: &'a Arc<Core>,
    request: Request,
    generation: Option<u64>,
    is_once: bool,
    until: Until,
    /// Until when an answer is waited for.
    answer_until: Until,
    /// How many were missing in the last answer, and the present generation.
    seen: Option<(u32, u64)>,
}

impl Waiter<'_> {
    async fn wait(&mut self) -> Result<Waited> {
        let core = self.core;
        let latches = core.latches()?;
        // Before the first request leaves, so that no wake-up can be missed.
        let ticket = core.waiting.enter(self.request.owner.id(), None);
        loop {
            ticket.forget_hints();
            self.request.op = Op::Look { generation: self.generation, wake: !self.is_once };
            let limit = core.command_until().min(self.answer_until);
            let again = match latches.ask(&self.request, limit).await {
                Ok(answer) => {
                    let present = answer.generation;
                    let generation = *self.generation.get_or_insert(present);
                    match answer.said {
                        Said::Stands(Standing::Armed { missing }) => self.seen = Some((missing, present)),
                        Said::Stands(standing) => return Ok(Waited { generation, standing, present }),
                        said => return Err(self.failed(unexpected(&said))),
                    }
                    core.clock.now() + self.pause(answer.first_ends_in)
                }
                Err(error) => self.outage(error)?,
            };
            let end = if self.seen.is_some() { self.until } else { self.answer_until };
            if core.clock.now() < end {
                let _woken = core.clock.bounded(again.min(end), ticket.notified()).await;
            }
            core.check_open()?;
            if let (Some((missing, present)), true) = (self.seen, core.clock.now() >= end) {
                let (generation, standing) =
                    (self.generation.unwrap_or(present), Standing::Armed { missing });
                return Ok(Waited { generation, standing, present });
            }
        }
    }

    /// A participant that dies is announced by nobody.
    fn pause(&self, first_ends_in: Option<Duration>) -> Duration {
        let fraction = self.core.entropy.fraction();
        let far = FAR_POLL.mul_f64(0.75 + fraction / 2.0);
        first_ends_in.map_or(far, |ends| far.min(ends + NEAR_POLL + SPREAD.mul_f64(fraction)))
    }

    fn outage(&mut self, error: EngineError) -> Result<BootInstant> {
        let passing = match error.fault {
            Fault::Unreachable | Fault::NoAnswer => true,
            // No reason to stop waiting.
            Fault::Overloaded | Fault::Busy | Fault::Refused(Refusal::ReadOnly | Refusal::OutOfMemory) => {
                self.seen.is_some()
            }
            _ => false,
        };
        let pause = OUTAGE_PAUSE.mul_f64(0.5 + self.core.entropy.fraction());
        let again = self.core.clock.now() + pause;
        if passing && (self.seen.is_some() || again < self.answer_until) {
            return Ok(again);
        }
        Err(self.failed(error))
    }

    fn failed(&self, error: EngineError) -> crate::Error {
        self.core.failed(error, "waiting for", &self.request.name)
    }
}
