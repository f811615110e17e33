//! The functions decide as the pure decider does: the same random steps on both lead to the same answers, holders and queues.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use leasehold::{
    Clock, Fence, Leasehold,
    engine::{Answer, Claim, Converted, Engine, EngineError, HandedTo, Mode, Queue, Released, Renewed},
    owner::Holder,
};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::{LONG, claim, database, engine, name, soon};

const WALKS: u64 = 24;
const STEPS: usize = 40;
/// A turn lasts two seconds on either store; walks that took longer may differ, and are taken again.
const TURN: Duration = Duration::from_millis(1500);

struct Attempt {
    claim: Claim,
    /// The fences on both stores, once it was answered that it holds the lock.
    fences: Option<[Fence; 2]>,
}

struct Walk {
    stores: [Arc<dyn Engine>; 2],
    random: StdRng,
    lock: String,
    attempts: Vec<Attempt>,
    modes: Vec<Mode>,
    next: u128,
    steps: Vec<String>,
}

/// Both stores answered differently.
struct Differs;

fn permits(take: u32, of: u32) -> Mode {
    Mode::Permits { take: NonZeroU32::new(take).unwrap(), of: NonZeroU32::new(of).unwrap() }
}

fn words<T>(answer: &Result<T, EngineError>, ok: impl Fn(&T) -> String) -> String {
    match answer {
        Ok(answer) => ok(answer),
        Err(error) => format!("{:?}", error.fault),
    }
}

fn answered(answer: &Answer) -> String {
    match answer {
        Answer::Granted(_) => "granted".into(),
        Answer::Queued { ahead, holders, .. } => format!("queued behind {ahead}, {} hold", holders.total),
        Answer::Busy { holders } => format!("busy, {} hold", holders.total),
        other => format!("{other:?}"),
    }
}

fn released(released: &Released) -> String {
    match released {
        Released::Taken { .. } => "taken".into(),
        other => format!("{other:?}"),
    }
}

fn converted(converted: &Converted) -> String {
    match converted {
        Converted::Done { .. } => "done".into(),
        other => format!("{other:?}"),
    }
}

fn label(holder: &Holder) -> String {
    match holder {
        Holder::Leasehold { label, .. } => label.clone(),
        other => format!("{other:?}"),
    }
}

impl Walk {
    fn below(&mut self, most: usize) -> usize {
        self.random.random_range(0..most)
    }

    /// Asks both stores and compares their words.
    async fn both<T, F>(
        &mut self,
        doing: &str,
        ask: impl Fn(Arc<dyn Engine>, usize) -> F,
        ok: fn(&T) -> String,
    ) -> Result<[Result<T, EngineError>; 2], Differs>
    where
        F: Future<Output = Result<T, EngineError>>,
    {
        let [postgres, reference] = self.stores.clone();
        let answers = [ask(postgres, 0).await, ask(reference, 1).await];
        let [of_postgres, of_reference] = answers.each_ref().map(|answer| words(answer, ok));
        self.steps.push(format!("{doing}: {of_postgres}, decider: {of_reference}"));
        if of_postgres == of_reference { Ok(answers) } else { Err(Differs) }
    }

    async fn claim_again(&mut self, at: usize) -> Result<(), Differs> {
        let claim = self.attempts[at].claim.clone();
        let doing = format!("claim of {} {}", label(&claim.owner.holder()), claim.mode);
        let ask = |store: Arc<dyn Engine>, _| {
            let claim = claim.clone();
            async move { store.leases().claim(&claim, soon()).await }
        };
        let [postgres, reference] = self.both(&doing, ask, answered).await?;
        match (postgres, reference) {
            (Ok(Answer::Granted(postgres)), Ok(Answer::Granted(reference))) => {
                let fences = [postgres.fence, reference.fence];
                let known = self.attempts[at].fences.replace(fences);
                assert!(
                    known.is_none_or(|known| known == fences),
                    "{doing}: another fence, {:#?}",
                    self.steps
                );
            }
            (Ok(Answer::Queued { .. }), _) => {}
            _ => drop(self.attempts.swap_remove(at)),
        }
        Ok(())
    }

    async fn step(&mut self) -> Result<(), Differs> {
        let held: Vec<_> =
            (0..self.attempts.len()).filter(|at| self.attempts[*at].fences.is_some()).collect();
        let some = (!self.attempts.is_empty()).then(|| self.below(self.attempts.len()));
        let holder = (!held.is_empty()).then(|| held[self.below(held.len())]);
        match (self.below(14), holder, some) {
            (0..=3, ..) => {
                self.next += 1;
                let which = self.below(self.modes.len());
                let mode = self.modes[which];
                let queue = (self.below(5) < 4).then_some(Queue { wait: LONG, poll_every: LONG });
                let claim = Claim { queue, ..claim(self.next, &self.lock, mode, LONG) };
                self.attempts.push(Attempt { claim, fences: None });
                self.claim_again(self.attempts.len() - 1).await?;
            }
            (4..=6, _, Some(at)) => self.claim_again(at).await?,
            (7 | 8, Some(at), _) => {
                let Attempt { claim, fences } = self.attempts.swap_remove(at);
                let release = |store: Arc<dyn Engine>, which: usize| {
                    let hold = claim.hold(fences.unwrap()[which]);
                    async move { store.leases().release(&hold, soon()).await }
                };
                let doing = format!("release of {} {}", label(&claim.owner.holder()), claim.mode);
                drop(self.both(&doing, release, released).await?);
            }
            (9, _, Some(at)) => {
                let claim = self.attempts.swap_remove(at).claim;
                let abandon = |store: Arc<dyn Engine>, _| {
                    let claim = claim.clone();
                    async move { store.leases().abandon(&claim, soon()).await }
                };
                let doing = format!("end of {}", label(&claim.owner.holder()));
                drop(self.both(&doing, abandon, |()| "done".into()).await?);
            }
            (10, Some(at), _) => {
                let Attempt { claim, fences } = &self.attempts[at];
                let (claim, fences) = (claim.clone(), fences.unwrap());
                let renew = |store: Arc<dyn Engine>, which: usize| {
                    let hold = claim.hold(fences[which]);
                    async move { store.leases().renew(&[hold], soon()).await?.remove(0) }
                };
                let kept = |renewed: &Renewed| (*renewed != Renewed::Gone).to_string();
                drop(self.both("renewal", renew, kept).await?);
            }
            (11, Some(at), _) if self.modes[0] == Mode::Exclusive => {
                let Attempt { claim, fences } = &self.attempts[at];
                let (claim, fences) = (claim.clone(), fences.unwrap());
                let to = if claim.mode == Mode::Shared { Mode::Exclusive } else { Mode::Shared };
                let convert = |store: Arc<dyn Engine>, which: usize| {
                    let hold = claim.hold(fences[which]);
                    async move { store.leases().convert(&hold, to, soon()).await }
                };
                let doing = format!("conversion of {} to {to}", label(&claim.owner.holder()));
                if let [Ok(Converted::Done { fence: a, .. }), Ok(Converted::Done { fence: b, .. })] =
                    self.both(&doing, convert, converted).await?
                {
                    let attempt = &mut self.attempts[at];
                    (attempt.claim.mode, attempt.fences) = (to, Some([a, b]));
                }
            }
            (11, ..) => {
                let limit = NonZeroU32::new(self.below(5) as u32 + 1).unwrap();
                let lock = name(&self.lock);
                let set = |store: Arc<dyn Engine>, _| {
                    let lock = lock.clone();
                    async move { store.leases().set_limit(&lock, limit, soon()).await }
                };
                drop(self.both(&format!("limit {limit}"), set, |()| "done".into()).await?);
            }
            (12, Some(at), Some(next)) => {
                let Attempt { claim, fences } = &self.attempts[at];
                let (claim, fences) = (claim.clone(), fences.unwrap());
                let next = self.attempts[next].claim.owner.holder();
                let hand = |store: Arc<dyn Engine>, which: usize| {
                    let (hold, next) = (claim.hold(fences[which]), next.clone());
                    async move { store.leases().hand_to(&hold, &next, soon()).await }
                };
                let handed = |handed: &HandedTo| match handed {
                    HandedTo::Done { .. } => "done".into(),
                    other => format!("{other:?}"),
                };
                let doing = format!("{} hands to {}", label(&claim.owner.holder()), label(&next));
                if let [Ok(HandedTo::Done { .. }), _] = self.both(&doing, hand, handed).await? {
                    self.attempts.swap_remove(at);
                }
            }
            (13, Some(at), _) => {
                let Attempt { claim, fences } = self.attempts.swap_remove(at);
                let force = |store: Arc<dyn Engine>, which: usize| {
                    let (lock, seen) = (claim.name.clone(), fences.unwrap()[which]);
                    async move { store.leases().force_release(&lock, seen, soon()).await }
                };
                drop(self.both("force-release", force, released).await?);
            }
            _ => {}
        }
        Ok(())
    }

    /// Who holds the lock and who waits, in order; and the limit.
    async fn seen(&self, which: usize) -> (Vec<(String, String)>, Vec<(String, String)>, Option<u32>) {
        let seen = self.stores[which].inspector().inspect(&name(&self.lock), soon()).await.unwrap();
        let holders = seen.holders.shown.iter().map(|held| (label(&held.holder), held.mode.to_string()));
        let waiters = seen.waiters.iter().map(|waits| (label(&waits.holder), waits.mode.to_string()));
        assert_eq!(seen.holders.total as usize, seen.holders.shown.len());
        (holders.collect(), waiters.collect(), seen.limit.map(u32::from))
    }

    /// Walks; the step at which both stores stood differently.
    async fn walk(&mut self) -> Result<(), Differs> {
        for _ in 0..STEPS {
            self.step().await?;
            let (postgres, reference) = (self.seen(0).await, self.seen(1).await);
            if postgres != reference {
                self.steps.push(format!("now {postgres:?}, decider: {reference:?}"));
                return Err(Differs);
            }
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_functions_decide_as_the_pure_decider_does() {
    let Some((server, database)) = database() else { return };
    let dir = tempfile::tempdir().unwrap();
    let stores = [
        engine(&server.url(&database)),
        Leasehold::builder(format!("sqlite:{}", dir.path().join("reference.db").display()))
            .into_engine()
            .unwrap(),
    ];
    let of_lock = vec![Mode::Exclusive, Mode::Shared, Mode::Shared];
    let of_semaphore = vec![permits(1, 4), permits(2, 4), permits(4, 4)];
    let clock = Clock::system();
    for number in 0..WALKS {
        let modes = match number % 4 {
            3 => [of_lock.clone(), of_semaphore.clone()].concat(),
            2 => of_semaphore.clone(),
            _ => of_lock.clone(),
        };
        let mut tries = 0;
        loop {
            let mut walk = Walk {
                stores: stores.clone(),
                random: StdRng::seed_from_u64(number),
                lock: format!("walk{number}.{tries}"),
                attempts: Vec::new(),
                modes: modes.clone(),
                next: (u128::from(number) << 64) + (tries << 32),
                steps: Vec::new(),
            };
            let began = clock.now();
            match walk.walk().await {
                Ok(()) => break,
                Err(Differs) if clock.now().since(began) > TURN && tries < 50 => tries += 1,
                Err(Differs) => panic!("walk {number}: {:#?}", walk.steps),
            }
        }
    }
}
