//! A store decides as the pure decider does: the same random steps on it and on the store in memory, which is that decider
//! behind a mutex, lead to the same answers, holders and queues.

use std::{
    num::NonZeroU32,
    sync::{Arc, Weak},
    time::Duration,
};

use rand::{RngExt, SeedableRng, rngs::StdRng};

use leasehold::{
    Clock, Fence, Leasehold,
    clock::Until,
    engine::{
        Acks, Answer, Claim, Converted, Engine, EngineError, LinkChange, Mode, Queue, Released, Renewed,
    },
    engine::{Wake, WakeSink},
    name::Name,
    owner::{Holder, Owner},
};

/// For things that take a moment on a busy machine.
const LONG: Duration = Duration::from_secs(60);
const STEPS: usize = 60;

/// Waiters count as reachable while it lives.
struct Sink;
impl WakeSink for Sink {
    fn wake(&self, _: Wake) {}
    fn link(&self, _: LinkChange) {}
}

/// One attempt as both stores know it.
struct Attempt {
    claim: Claim,
    /// The fences in the store and in memory, once it was answered that it holds the lock.
    fences: Option<[Fence; 2]>,
}

struct Walk {
    stores: [Arc<dyn Engine>; 2],
    random: StdRng,
    name: String,
    attempts: Vec<Attempt>,
    modes: Vec<Mode>,
    converts: bool,
    next: u128,
    /// What was done, and what came of it.
    steps: Vec<String>,
}

/// What an answer says, without fences and times.
fn words<T>(answer: &Result<T, EngineError>, ok: impl Fn(&T) -> String) -> String {
    match answer {
        Ok(answer) => ok(answer),
        Err(error) => format!("{:?}", error.fault),
    }
}

fn answer_words(answer: &Answer) -> String {
    match answer {
        Answer::Granted(_) => "granted".into(),
        Answer::Queued { ahead, holders, .. } => format!("queued behind {ahead}, {} hold", holders.total),
        Answer::Busy { holders } => format!("busy, {} hold", holders.total),
        other => format!("{other:?}"),
    }
}

fn released_words(released: &Released) -> String {
    match released {
        Released::HandedOver { to, .. } => format!("handed to {to}"),
        Released::Taken { .. } => "taken".into(),
        other => format!("{other:?}"),
    }
}

fn converted_words(converted: &Converted) -> String {
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
    /// Asks both stores and compares their words.
    async fn both<T, F>(
        &mut self,
        doing: &str,
        ask: impl Fn(Arc<dyn Engine>) -> F,
        ok: fn(&T) -> String,
    ) -> [Result<T, EngineError>; 2]
    where
        F: Future<Output = Result<T, EngineError>>,
    {
        let [store, memory] = self.stores.clone();
        let answers = [ask(store).await, ask(memory).await];
        let [store, memory] = answers.each_ref().map(|answer| words(answer, ok));
        self.steps.push(format!("{doing}: {memory}"));
        assert_eq!(store, memory, "{:#?}", self.steps);
        answers
    }

    async fn claim_again(&mut self, at: usize) {
        let claim = self.attempts[at].claim.clone();
        let doing = format!("claim of {} {}", label(&claim.owner.holder()), claim.mode);
        let ask = |store: Arc<dyn Engine>| {
            let claim = claim.clone();
            async move { store.leases().claim(&claim, soon()).await }
        };
        let [store, memory] = self.both(&doing, ask, answer_words).await;
        match (store, memory) {
            (Ok(Answer::Granted(store)), Ok(Answer::Granted(memory))) => {
                let fences = [store.fence, memory.fence];
                let known = self.attempts[at].fences.replace(fences);
                assert!(known.is_none_or(|known| known == fences), "{doing}: another fence");
            }
            (Ok(Answer::Queued { .. }), _) => {}
            _ => drop(self.attempts.swap_remove(at)),
        }
    }

    async fn step(&mut self) {
        let held: Vec<_> =
            (0..self.attempts.len()).filter(|at| self.attempts[*at].fences.is_some()).collect();
        let some = (!self.attempts.is_empty()).then(|| self.random.random_range(0..self.attempts.len()));
        let holder = (!held.is_empty()).then(|| held[self.random.random_range(0..held.len())]);
        match self.random.random_range(0..12) {
            0..=3 => {
                self.next += 1;
                let mode = self.modes[self.random.random_range(0..self.modes.len())];
                let queue =
                    self.random.random_ratio(4, 5).then_some(Queue { wait: LONG * 10, poll_every: LONG });
                let claim = Claim { queue, ..claim(self.next, &self.name, mode) };
                self.attempts.push(Attempt { claim, fences: None });
                self.claim_again(self.attempts.len() - 1).await;
            }
            4 | 5 => {
                if let Some(at) = some {
                    self.claim_again(at).await;
                }
            }
            6 | 7 => {
                let Some(at) = holder else { return };
                let Attempt { claim, fences } = self.attempts.swap_remove(at);
                let hold = claim.hold(fences.unwrap()[0]);
                let release = |store: Arc<dyn Engine>| {
                    let hold = hold.clone();
                    async move { store.leases().release(&hold, soon()).await }
                };
                let doing = format!("release of {} {}", label(&claim.owner.holder()), claim.mode);
                drop(self.both(&doing, release, released_words).await);
            }
            8 => {
                let Some(at) = some else { return };
                let claim = self.attempts.swap_remove(at).claim;
                let abandon = |store: Arc<dyn Engine>| {
                    let claim = claim.clone();
                    async move { store.leases().abandon(&claim, soon()).await }
                };
                drop(self.both("abandon", abandon, |()| "done".into()).await);
            }
            9 => {
                let Some(at) = holder else { return };
                let Attempt { claim, fences } = &self.attempts[at];
                let hold = claim.hold(fences.unwrap()[0]);
                let renew = |store: Arc<dyn Engine>| {
                    let hold = hold.clone();
                    async move { store.leases().renew(&[hold], soon()).await?.remove(0) }
                };
                let kept = |renewed: &Renewed| (*renewed != Renewed::Gone).to_string();
                drop(self.both("renewal", renew, kept).await);
            }
            10 if self.modes[0] == Mode::Exclusive => {
                let Some(at) = holder.filter(|_| self.converts) else { return };
                let Attempt { claim, fences } = &self.attempts[at];
                let to = if claim.mode == Mode::Shared { Mode::Exclusive } else { Mode::Shared };
                let hold = claim.hold(fences.unwrap()[0]);
                let convert = |store: Arc<dyn Engine>| {
                    let hold = hold.clone();
                    async move { store.leases().convert(&hold, to, soon()).await }
                };
                let doing = format!("conversion of {} to {to}", label(&claim.owner.holder()));
                let [store, memory] = self.both(&doing, convert, converted_words).await;
                if let (Ok(Converted::Done { fence: store, .. }), Ok(Converted::Done { fence: memory, .. })) =
                    (store, memory)
                {
                    let attempt = &mut self.attempts[at];
                    (attempt.claim.mode, attempt.fences) = (to, Some([store, memory]));
                }
            }
            10 => {
                let limit = self.random.random_range(1..6).try_into().unwrap();
                let name = claim(0, &self.name, Mode::Exclusive).name;
                let set = |store: Arc<dyn Engine>| {
                    let name = name.clone();
                    async move { store.leases().set_limit(&name, limit, soon()).await }
                };
                drop(self.both("set_limit", set, |()| "done".into()).await);
            }
            _ => {
                let Some(at) = holder else { return };
                let Attempt { claim, fences } = self.attempts.swap_remove(at);
                let [store, memory] = self.stores.clone();
                let [of_store, of_memory] = fences.unwrap();
                let store = store.leases().force_release(&claim.name, of_store, soon()).await;
                let memory = memory.leases().force_release(&claim.name, of_memory, soon()).await;
                assert_eq!(words(&store, released_words), words(&memory, released_words), "force-release");
            }
        }
    }

    /// Who holds the lock and who waits, in order; and the limit.
    async fn state(
        &self,
        store: &Arc<dyn Engine>,
    ) -> (Vec<(String, String)>, Vec<(String, String)>, Option<u32>) {
        let name = claim(0, &self.name, Mode::Exclusive).name;
        let seen = store.inspector().inspect(&name, soon()).await.unwrap();
        let holders =
            seen.holders.shown.iter().map(|held| (label(&held.holder), held.mode.kind().to_owned()));
        let waiters = seen.waiters.iter().map(|waits| (label(&waits.holder), waits.mode.to_string()));
        assert_eq!(seen.holders.total as usize, seen.holders.shown.len());
        (holders.collect(), waiters.collect(), seen.limit.map(u32::from))
    }
}

/// Takes the steps of one seed on a store and in memory. Not every store lets a holder change its mode.
pub(crate) async fn compare(store: Arc<dyn Engine>, seed: u64, converts: bool) {
    let memory = Leasehold::builder(format!("memory:walk{seed}")).into_engine().unwrap();
    let stores = [store, memory];
    let sink: Arc<dyn WakeSink> = Arc::new(Sink);
    let weak: Weak<dyn WakeSink> = Arc::downgrade(&sink);
    stores.iter().for_each(|store| store.set_wake_sink(weak.clone()));
    let of_lock = vec![Mode::Exclusive, Mode::Shared, Mode::Shared];
    let of_semaphore = vec![permits(1, 4), permits(2, 4), permits(4, 4)];
    let modes = match seed % 4 {
        3 => [of_lock, of_semaphore].concat(),
        2 => of_semaphore,
        _ => of_lock,
    };
    let random = StdRng::seed_from_u64(seed);
    let (name, attempts, steps) = (format!("walk{seed}"), Vec::new(), Vec::new());
    let mut walk = Walk { stores, random, name, attempts, modes, converts, next: 0, steps };
    for step in 0..STEPS {
        walk.step().await;
        let [store, memory] = walk.stores.clone();
        let (store, memory) = (walk.state(&store).await, walk.state(&memory).await);
        assert_eq!(store, memory, "walk {seed}, step {step}: {:#?}", walk.steps);
    }
}

fn permits(take: u32, of: u32) -> Mode {
    let number = |number| NonZeroU32::new(number).unwrap();
    Mode::Permits { take: number(take), of: number(of) }
}

/// A claim that asks once.
fn claim(random: u128, name: &str, mode: Mode) -> Claim {
    Claim {
        name: Name::new(name).unwrap(),
        owner: Owner::new(random, &Holder::this_process(&random.to_string(), 1)),
        ttl: LONG,
        format: leasehold::engine::Format::Plain,
        lock_delay: Duration::ZERO,
        mode,
        queue: None,
        acks: Acks::None,
    }
}

fn soon() -> Until {
    Clock::system().now() + LONG
}
