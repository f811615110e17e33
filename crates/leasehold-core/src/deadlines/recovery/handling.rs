//! One deadline in the hands of its handler.

use std::{any::Any, future::Future, panic::AssertUnwindSafe, pin::Pin, sync::Arc};

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::plan::Plan;
use crate::{
    deadlines::{Deadlines, Due, Settle},
    error::Result,
    lease::validity,
    telemetry::Count,
};

pub(super) type Handler =
    Arc<dyn Fn(Due) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send + Sync>;

/// What is done for a pool, by whom.
pub(super) struct Handling {
    pub(super) deadlines: Deadlines,
    pub(super) plan: Plan,
    pub(super) handler: Handler,
}

impl Handling {
    /// Handles one deadline. Returns what becomes of it, unless it comes back by itself or is somebody else's by now.
    pub(super) async fn handle(&self, mut due: Due, cut: &CancellationToken) -> Option<Settle> {
        let Self { deadlines, plan, handler } = self;
        let core = deadlines.core();
        if due.hidden_for() < plan.handler_timeout() {
            match self.hide_again(&mut due).await {
                Ok(true) => {}
                Ok(false) => {
                    core.telemetry.count(Count::deadlines_stale);
                    return None;
                }
                // Its handler was not called, so it must not cost an attempt.
                Err(_unreachable) => return Some(Settle::GiveBack),
            }
        }
        let span = tracing::debug_span!("deadline", id = due.id(), attempt = due.attempt());
        let until = due.hidden_until.min(core.clock.now() + plan.handler_timeout());
        let given = due.clone();
        let work = AssertUnwindSafe(async move { handler(given).await }).catch_unwind();
        let ended = tokio::select! {
            biased;
            () = cut.cancelled() => return None,
            ended = core.clock.bounded(until, work.instrument(span)) => match ended {
                Some(Ok(Ok(()))) => Ok(()),
                Some(Ok(Err(why))) => Err((Count::deadlines_failed, format!("failed: {why}"))),
                Some(Err(panic)) => Err((Count::deadlines_panicked, format!("panicked: {}", panic_text(&*panic)))),
                None => Err((Count::deadlines_timed_out, format!("took longer than {:?}", plan.handler_timeout()))),
            },
        };
        if let Err((count, how)) = &ended {
            core.telemetry.count(*count);
            tracing::warn!(id = due.id(), attempt = due.attempt(), how, "the handler of a deadline failed");
        }
        if due.is_settled() {
            return None;
        }
        Some(match ended {
            Ok(()) => Settle::Done,
            Err((_, how)) => plan.after_failure(due.attempt(), &how, core.entropy.fraction()),
        })
    }

    /// Renews the claim of a deadline that has waited so long for a free handler that its visibility would end mid-run.
    /// False if somebody else has claimed it since.
    async fn hide_again(&self, due: &mut Due) -> Result<bool> {
        let (core, visibility) = (self.deadlines.core(), self.plan.visibility);
        let (engine, pool) = self.deadlines.opening().ready().await?;
        let since = core.clock.now();
        let again = [(due.receipt().clone(), Settle::Postpone(visibility))];
        let answer = engine.settle(pool, &again, core.command_until()).await;
        let hidden = answer.map_err(|error| core.explain(error, "claiming again in", &pool.name))? == [true];
        due.hidden_until = validity::valid_until(since, visibility);
        Ok(hidden)
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}
