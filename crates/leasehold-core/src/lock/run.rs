//! Work under a lock.

use std::{fmt, panic::AssertUnwindSafe};

use futures_util::FutureExt;
use tracing::Instrument;

use crate::{
    error::Error,
    fence::Fence,
    lease::{Guard, Lease},
    name::Name,
};

/// Why [`Lock::run`](super::Lock::run) did not return the body's value.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum RunError<T> {
    /// The lock was not acquired; the body did not run.
    #[error(transparent)]
    NotRun(Error),
    /// The lease ended before the body did. The work may be done in part, and another holder may be working already.
    #[error("{}", Error::Lost { name: name.clone(), fence: *fence })]
    Lost {
        /// The body's value, if it ended before it could be cancelled.
        value: Option<T>,
        /// The lock.
        name: Name,
        /// The fence under which the body ran.
        fence: Fence,
    },
}

/// The same as a plain error, without the value.
impl<T> From<RunError<T>> for Error {
    fn from(error: RunError<T>) -> Self {
        match error {
            RunError::NotRun(error) => error,
            RunError::Lost { name, fence, .. } => Self::Lost { name, fence },
        }
    }
}

/// No value: it may be a secret.
impl<T> fmt::Debug for RunError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRun(error) => f.debug_tuple("NotRun").field(error).finish(),
            Self::Lost { value, name, fence } => {
                let mut lost = f.debug_struct("Lost");
                lost.field("name", name).field("fence", fence).field("body_ended", &value.is_some()).finish()
            }
        }
    }
}

pub(super) async fn under<T>(guard: Guard, body: impl AsyncFnOnce(Lease) -> T) -> Result<T, RunError<T>> {
    let ended = until_lost(&guard.lease, body).await;
    settle(guard, ended).await
}

/// Runs a body under a lease, until it ends or the lease is lost.
pub(crate) async fn until_lost<T>(
    lease: &Lease,
    body: impl AsyncFnOnce(Lease) -> T,
) -> Option<std::thread::Result<T>> {
    let span = tracing::debug_span!(
        "hold", name = %lease.name(), fence = %lease.fence(), mode = lease.state.hold.mode.as_str(),
        policy = lease.state.telemetry.policy(),
    );
    unless(lease.lost(), body(lease.clone()).instrument(span)).await
}

/// Runs a body until it ends, with a panic perhaps; `None` if `lost` completes before, which cancels it.
pub(crate) async fn unless<T>(
    lost: impl Future<Output = ()>,
    body: impl Future<Output = T>,
) -> Option<std::thread::Result<T>> {
    tokio::select! {
        biased;
        () = lost => None,
        ended = AssertUnwindSafe(body).catch_unwind() => Some(ended),
    }
}

/// Gives the lock back after a body that ended (with a panic, perhaps) or was cancelled, and says what became of it.
///
/// # Errors
/// [`RunError::Lost`] when the lease had ended by then.
pub async fn settle<T>(guard: Guard, ended: Option<std::thread::Result<T>>) -> Result<T, RunError<T>> {
    let lease = guard.lease();
    // Asked before the release, which ends the lease for everybody.
    let held_to_the_end = lease.is_held();
    // A lost lock with a lock-delay is left to its delay; a release that fails is logged.
    if guard.keeps_delay() {
        drop(guard);
    } else {
        let _logged = guard.release().await;
    }
    conclude(&lease, held_to_the_end, ended)
}

/// What became of a body, once its lock was given back.
pub(crate) fn conclude<T>(
    lease: &Lease,
    held_to_the_end: bool,
    ended: Option<std::thread::Result<T>>,
) -> Result<T, RunError<T>> {
    match ended {
        Some(Err(panic)) => std::panic::resume_unwind(panic),
        Some(Ok(value)) if held_to_the_end => Ok(value),
        ended => Err(RunError::Lost {
            value: ended.and_then(Result::ok),
            name: lease.name().clone(),
            fence: lease.fence(),
        }),
    }
}
