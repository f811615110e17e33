//! The operator of a load: changes the limits of its semaphores all the time.

use std::{sync::Arc, time::Duration};

use leasehold::Leasehold;

use super::{
    Shared,
    kind::{LIMIT, LOWERED},
    tenure::PAUSE,
};
use crate::{history::Event, now};

/// How long a limit stays, longer than most attempts take: nobody knows which one an attempt met that was under way.
const LASTS: Duration = Duration::from_millis(50);

impl Shared {
    pub(super) async fn operate(self: Arc<Self>, leases: Leasehold, process: String) {
        // The first to use a semaphore says what all others must name.
        for limit in [LIMIT.get(), LOWERED].into_iter().cycle() {
            for number in 0..self.load.names {
                if self.is_over() {
                    return;
                }
                self.set_limit(&leases, &process, number, limit).await;
            }
            tokio::time::sleep(LASTS).await;
        }
    }

    async fn set_limit(&self, leases: &Leasehold, process: &str, number: usize, limit: u32) {
        let (process, attempt, name) = (process.to_owned(), self.next_attempt(), self.load.name(number));
        let (asks, asked) = (process.clone(), name.clone());
        self.recorder.record(&Event::Limiting { process: asks, attempt, name: asked, limit, at: now() });
        match leases.set_limit(&name, limit).await {
            Ok(()) => self.recorder.record(&Event::Limited { process, attempt, at: now() }),
            Err(error) => {
                self.failed(error);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
