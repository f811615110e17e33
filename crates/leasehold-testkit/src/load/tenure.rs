//! One attempt of a load: what it gets, how it uses that, and how it gives it back.

use std::time::Duration;

use leasehold::{Error, Leadership, Lease, Leasehold, Mode, RunError};
use tokio::{sync::oneshot, time::Instant};

use super::{Kind, Shared, share};
use crate::{history::Event, now};

/// Pause after an error: a store that is down fails fast, and retries would become a busy loop.
pub(super) const PAUSE: Duration = Duration::from_millis(20);

/// One attempt.
pub(super) struct Attempt<'a> {
    pub(super) shared: &'a Shared,
    pub(super) leases: &'a Leasehold,
    pub(super) process: String,
    /// Which attempt of the process.
    pub(super) attempt: u64,
    /// The number of its name.
    pub(super) number: usize,
}

impl Attempt<'_> {
    pub(super) async fn run(self) {
        let (load, name) = (&self.shared.load, self.shared.load.name(self.number));
        let (process, attempt) = (self.process.clone(), self.attempt);
        self.record(Event::Invoked { process: process.clone(), attempt, name: name.clone(), at: now() });
        let mode = load.kind.mode(attempt);
        if mode != Mode::Exclusive {
            self.record(Event::Asked { process, attempt, mode });
        }
        if load.kind == Kind::Election {
            return self.lead(&name).await;
        }
        let lock = self.leases.lock(&name).mode(mode).ttl(load.ttl).wait(load.wait);
        let lock = if attempt % 10 < load.kept_of_ten { lock.keep_alive() } else { lock };
        match lock.acquire().await {
            Ok(guard) => {
                self.hold(&guard.lease()).await;
                if let Err(error) = guard.release().await {
                    self.shared.failed(error);
                }
            }
            Err(error) => self.not_granted(error).await,
        }
    }

    /// A term; of some leaders another task asks for its end while the body runs.
    async fn lead(&self, name: &str) {
        let load = &self.shared.load;
        let election = self.leases.election(name).ttl(load.ttl).wait(load.wait);
        let (elected, leadership) = oneshot::channel();
        let body = async move |leadership: Leadership| {
            let lease = leadership.lease();
            let _nobody_asks_for_its_end = elected.send(leadership);
            self.hold(&lease).await;
        };
        let led = async { (election.lead(body).await, now()) };
        let resigned = async {
            let leadership = leadership.await.ok().filter(|_| self.attempt.is_multiple_of(3))?;
            if let Err(error) = leadership.resign().await {
                self.shared.failed(error);
            }
            Some(now())
        };
        let ((led, led_until), resigned_at) = tokio::join!(led, resigned);
        match led {
            Ok(()) | Err(RunError::Lost { value: Some(()), .. }) => {}
            Err(RunError::NotRun(error)) => return self.not_granted(error).await,
            Err(RunError::Lost { fence, .. }) => self.lost(fence.get()),
            Err(other) => self.shared.failed(other.into()),
        }
        let at = resigned_at.map_or(led_until, |resigned_at| resigned_at.min(led_until));
        self.record(Event::GivenBack { process: self.process.clone(), attempt: self.attempt, at });
    }

    /// Relies on a lease for a while. Cancelled, it has stopped, too.
    async fn hold(&self, lease: &Lease) {
        let (shared, process, attempt) = (self.shared, &self.process, self.attempt);
        let (fence, at) = (lease.fence().get(), now());
        let valid_until = validity_from(at, lease);
        self.record(Event::Granted { process: process.clone(), attempt, fence, at, valid_until });
        let _stops = Stops(self);
        shared.granted();
        self.write(fence);
        let done_at = Instant::now() + shared.load.hold.mul_f64(share(attempt, 7));
        let mut over = false;
        while !over {
            let look_again_at = Instant::now() + shared.load.ttl / 4;
            over = done_at <= look_again_at || shared.is_over();
            tokio::select! {
                () = tokio::time::sleep_until(done_at.min(look_again_at)) => {}
                () = lease.lost() => {
                    self.lost(fence);
                    over = true;
                }
            }
            let at = now();
            if lease.is_held() {
                let valid_until = validity_from(at, lease);
                self.record(Event::Renewed { process: process.clone(), attempt, valid_until });
            }
        }
    }

    fn lost(&self, fence: u64) {
        self.shared.note(|tally| tally.lost += 1);
        // As a holder that has not noticed the loss: the resource must refuse it.
        self.write(fence);
    }

    /// Only one holder at a time writes to a resource.
    fn write(&self, fence: u64) {
        let load = &self.shared.load;
        if load.kind.mode(self.attempt) == Mode::Exclusive
            && let Some(register) = load.registers.get(self.number)
            && !register.write(fence, &self.process).expect("a register can be written")
        {
            self.shared.note(|tally| tally.writes_refused += 1);
        }
    }

    async fn not_granted(&self, error: Error) {
        if let Error::TimedOut { .. } = error {
            self.record(Event::Failed { process: self.process.clone(), attempt: self.attempt });
            self.shared.note(|tally| tally.timed_out += 1);
        } else {
            self.shared.failed(error);
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn record(&self, event: Event) {
        self.shared.recorder.record(&event);
    }
}

/// A holder at work. Its drop is the last that it does under its lease.
struct Stops<'a>(&'a Attempt<'a>);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        let Attempt { process, attempt, .. } = self.0;
        self.0.record(Event::Released { process: process.clone(), attempt: *attempt, at: now() });
    }
}

/// Until when a lease is valid. `at` was read before: a process that was stopped in between must not appear to rely on it for
/// longer.
fn validity_from(at: u64, lease: &Lease) -> u64 {
    at + lease.remaining().as_nanos() as u64
}
