//! A holder makes one that waits the next holder.

use super::{Cleanup, Guard, Lease};
use crate::{
    engine::{HandedTo, Released},
    error::Result,
    owner::Holder,
};

impl Guard {
    /// Hands the lock to the one that waits and that people see like this, or releases it if there is none any more. The lease
    /// ends on this side before anything is sent: the next one may hold the lock before the answer is here.
    ///
    /// # Cancel safety
    /// Dropping the future leaves it to the guard to be asked again or dropped.
    pub(crate) async fn hand_to(&mut self, next: &Holder) -> Result<Released> {
        // A minimum hold time would keep the next one out.
        let _not_closed = self.stop();
        let Lease { state, core } = &self.lease;
        match core.engine.leases().hand_to(&state.hold, next, core.command_until()).await {
            Ok(HandedTo::Done { fence }) => {
                self.settled = true;
                let outcome = Released::handed_over(Some(fence));
                self.report(outcome);
                Ok(outcome)
            }
            Ok(HandedTo::NotWaiting | HandedTo::Gone) => self.release_in_place().await,
            Err(error) => {
                let error = core.failed(error, "handing over", &state.hold.name);
                core.reaper.spawn(Cleanup::Release(state.hold.clone()));
                self.settled = true;
                Err(error)
            }
        }
    }
}
