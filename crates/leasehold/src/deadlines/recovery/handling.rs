//! One deadline in the hands of its handler.

use std::{any::Any, future::Future, panic::AssertUnwindSafe, pin::Pin, sync::Arc};

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{
    Plan,
    verdict::{End, verdict},
};
use crate::{
    deadlines::{Deadlines, Due, Settle},
    error::Result,
    lease::validity,
    telemetry::Count,
};

pub(super) type Handler =
    Arc<dyn Fn(Due) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send + Sync>;

/// Handles one deadline; what becomes of it, unless it is to be left alone.
pub(super) async fn handle(
    deadlines: &Deadlines,
    plan: &Plan,
    handler: Handler,
    mut due: Due,
    cut: &CancellationToken,
) -> Option<Settle> {
    let core = deadlines.core();
    if due.hidden_for() < plan.handler_timeout() {
        match hide_again(deadlines, plan, &mut due).await {
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
    let until = due.hidden_until().min(core.clock.now() + plan.handler_timeout());
    let given = due.clone();
    let work = AssertUnwindSafe(async move { handler(given).await }).catch_unwind();
    let ended = tokio::select! {
        biased;
        () = cut.cancelled() => End::CutOff,
        ended = core.clock.bounded(until, work.instrument(span)) => match ended {
            Some(Ok(Ok(()))) => End::Done,
            Some(Ok(Err(why))) => End::Failed(why),
            Some(Err(panic)) => End::Panicked(panic_text(&*panic)),
            None => End::TimedOut(plan.handler_timeout()),
        },
    };
    count(deadlines, &due, &ended);
    let ended = if due.is_settled() { End::Settled } else { ended };
    verdict(&ended, due.attempt(), plan.attempts, &plan.backoff, core.entropy.fraction())
}

/// Renews the claim of a deadline that has waited so long for a free handler that its visibility would end mid-run. False
/// if somebody else has claimed it since.
async fn hide_again(deadlines: &Deadlines, plan: &Plan, due: &mut Due) -> Result<bool> {
    let core = deadlines.core();
    let (engine, pool) = deadlines.opening().ready().await?;
    let since = core.clock.now();
    let again = [(due.receipt().clone(), Settle::Postpone(plan.visibility))];
    let answer = engine.settle(pool, &again, core.command_until()).await;
    let hidden = answer.map_err(|error| core.explain(error, "claiming again in", &pool.name))? == [true];
    due.hide_until(validity::valid_until(since, plan.visibility));
    Ok(hidden)
}

fn count(deadlines: &Deadlines, due: &Due, ended: &End) {
    let (count, what) = match ended {
        End::Failed(_) => (Count::deadlines_failed, "failed"),
        End::Panicked(_) => (Count::deadlines_panicked, "panicked"),
        End::TimedOut(_) => (Count::deadlines_timed_out, "took too long"),
        End::Done | End::Settled | End::CutOff => return,
    };
    deadlines.core().telemetry.count(count);
    let (End::Failed(why) | End::Panicked(why)) = ended else {
        tracing::warn!(id = due.id(), attempt = due.attempt(), "the handler of a deadline {what}");
        return;
    };
    tracing::warn!(id = due.id(), attempt = due.attempt(), why, "the handler of a deadline {what}");
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".into())
}
