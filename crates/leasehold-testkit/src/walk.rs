//! Random steps on an engine and on another one whose decisions are those of the pure decider: both must give the same answers,
//! and have the same holders and queues after each step.

use std::{
    num::NonZeroU32,
    sync::{Arc, Weak},
    time::Duration,
};

use rand::{RngExt, SeedableRng, rngs::StdRng};

use leasehold::{
    Clock, Fence,
    clock::Until,
    engine::{
        Acks, Answer, Claim, Converted, Engine, EngineError, Format, HandedTo, Handover, LinkChange, Mode,
        Queue, Released, Renewed, Wake, WakeSink,
    },
    name::Name,
    owner::{Holder, Owner},
};

/// For things that take a moment on a busy machine.
const LONG: Duration = Duration::from_secs(60);
const STEPS: usize = 60;
/// Where a waiter has a turn to claim, that lasts two seconds. A walk that took longer may differ, and is taken again.
const TURN: Duration = Duration::from_millis(1500);
const TRIES_MAX: u32 = 50;

/// Takes the steps of a seed on an engine and on a reference: `memory:`, or `sqlite:` for an engine in which a waiter has a turn to
/// claim.
///
/// # Panics
/// When they differ.
pub async fn compare(engine: Arc<dyn Engine>, reference: Arc<dyn Engine>, seed: u64) {
    let sink: Arc<dyn WakeSink> = Arc::new(Sink);
    let weak: Weak<dyn WakeSink> = Arc::downgrade(&sink);
    let engines = [engine, reference];
    engines.iter().for_each(|engine| engine.set_wake_sink(weak.clone()));
    let has_turns = engines[1].capabilities().handover == Handover::Pull;
    let clock = Clock::system();
    for attempt in 0..TRIES_MAX {
        let mut walk = Walk::new(engines.clone(), seed, attempt);
        let began = clock.now();
        let Err(Differs) = walk.walk().await else { return };
        let was_slow = has_turns && clock.now().since(began) > TURN;
        assert!(was_slow, "walk {seed}: {:#?}", walk.steps);
    }
    panic!("walk {seed} never ended within a turn");
}

/// Waiters count as reachable while it lives.
struct Sink;
impl WakeSink for Sink {
    fn wake(&self, _: Wake) {}
    fn link(&self, _: LinkChange) {}
}

/// Both engines answered, or stood, differently.
struct Differs;

/// One attempt as both engines know it.
struct Attempt {
    claim: Claim,
    /// The fences in both, once it was answered that it holds the lock.
    fences: Option<[Fence; 2]>,
}

/// Who holds a lock and who waits, in order; and the limit.
type Seen = (Vec<(String, String)>, Vec<(String, String)>, Option<u32>);

struct Walk {
    engines: [Arc<dyn Engine>; 2],
    random: StdRng,
    name: Name,
    attempts: Vec<Attempt>,
    modes: Vec<Mode>,
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
        Released::HandedOver { to, .. } => format!("handed to {to}"),
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

fn handed(handed: &HandedTo) -> String {
    match handed {
        HandedTo::Done { .. } => "done".into(),
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
    fn new(engines: [Arc<dyn Engine>; 2], seed: u64, attempt: u32) -> Self {
        let of_lock = vec![Mode::Exclusive, Mode::Shared, Mode::Shared];
        let of_semaphore = vec![permits(1, 4), permits(2, 4), permits(4, 4)];
        let modes = match seed % 4 {
            3 => [of_lock, of_semaphore].concat(),
            2 => of_semaphore,
            _ => of_lock,
        };
        Self {
            engines,
            random: StdRng::seed_from_u64(seed),
            name: Name::new(format!("walk{seed}.{attempt}")).expect("a short name"),
            attempts: Vec::new(),
            modes,
            next: (u128::from(seed) << 64) + (u128::from(attempt) << 32),
            steps: Vec::new(),
        }
    }

    async fn walk(&mut self) -> Result<(), Differs> {
        for _ in 0..STEPS {
            self.step().await?;
            let (here, there) = (self.seen(0).await, self.seen(1).await);
            if here != there {
                self.steps.push(format!("now {here:?}, reference: {there:?}"));
                return Err(Differs);
            }
        }
        Ok(())
    }

    fn below(&mut self, most: usize) -> usize {
        self.random.random_range(0..most)
    }

    /// Asks both and compares their words.
    async fn both<T, F>(
        &mut self,
        doing: &str,
        ask: impl Fn(Arc<dyn Engine>, usize) -> F,
        ok: fn(&T) -> String,
    ) -> Result<[Result<T, EngineError>; 2], Differs>
    where
        F: Future<Output = Result<T, EngineError>>,
    {
        let [engine, reference] = self.engines.clone();
        let answers = [ask(engine, 0).await, ask(reference, 1).await];
        let [here, there] = answers.each_ref().map(|answer| words(answer, ok));
        self.steps.push(format!("{doing}: {here}, reference: {there}"));
        if here == there { Ok(answers) } else { Err(Differs) }
    }

    async fn step(&mut self) -> Result<(), Differs> {
        let held: Vec<_> =
            (0..self.attempts.len()).filter(|at| self.attempts[*at].fences.is_some()).collect();
        let some = (!self.attempts.is_empty()).then(|| self.below(self.attempts.len()));
        let holder = (!held.is_empty()).then(|| held[self.below(held.len())]);
        let can = self.engines[0].capabilities();
        let exclusive =
            |at: &Option<usize>| at.is_some_and(|at| self.attempts[at].claim.mode == Mode::Exclusive);
        let are_exclusive = [&holder, &some].into_iter().all(exclusive);
        let (converts, names_next) = (can.no_convert.is_none(), can.no_hand_to.is_none());
        match (self.below(14), holder, some) {
            (0..=3, ..) => self.claim().await,
            (4..=6, _, Some(at)) => self.claim_again(at).await,
            (7 | 8, Some(at), _) => self.release(at).await,
            (9, _, Some(at)) => self.abandon(at).await,
            (10, Some(at), _) => self.renew(at).await,
            (11, Some(at), _) if self.modes[0] == Mode::Exclusive && converts => self.convert(at).await,
            (11, ..) if self.modes[0] != Mode::Exclusive => self.set_limit().await,
            // As leaders and candidates do, who are exclusive.
            (12, Some(at), Some(next)) if names_next && are_exclusive => self.hand_to(at, next).await,
            (13, Some(at), _) => self.force_release(at).await,
            _ => Ok(()),
        }
    }

    async fn claim(&mut self) -> Result<(), Differs> {
        self.next += 1;
        let which = self.below(self.modes.len());
        let queue = (self.below(5) < 4).then_some(Queue { wait: LONG * 10, poll_every: LONG });
        let claim = Claim {
            name: self.name.clone(),
            owner: Owner::new(self.next, &Holder::this_process(&self.next.to_string(), 1)),
            ttl: LONG * 5,
            format: Format::Plain,
            lock_delay: Duration::ZERO,
            mode: self.modes[which],
            queue,
            acks: Acks::None,
        };
        self.attempts.push(Attempt { claim, fences: None });
        self.claim_again(self.attempts.len() - 1).await
    }

    async fn claim_again(&mut self, at: usize) -> Result<(), Differs> {
        let claim = self.attempts[at].claim.clone();
        let doing = format!("claim of {} {}", label(&claim.owner.holder()), claim.mode);
        let ask = |engine: Arc<dyn Engine>, _| {
            let claim = claim.clone();
            async move { engine.leases().claim(&claim, soon()).await }
        };
        match self.both(&doing, ask, answered).await? {
            [Ok(Answer::Granted(here)), Ok(Answer::Granted(there))] => {
                let fences = [here.fence, there.fence];
                let known = self.attempts[at].fences.replace(fences);
                let is_same = known.is_none_or(|known| known == fences);
                assert!(is_same, "{doing}: another fence, {:#?}", self.steps);
            }
            [Ok(Answer::Queued { .. }), _] => {}
            _ => drop(self.attempts.swap_remove(at)),
        }
        Ok(())
    }

    async fn release(&mut self, at: usize) -> Result<(), Differs> {
        let (claim, fences) = self.take(at);
        let release = |engine: Arc<dyn Engine>, which: usize| {
            let hold = claim.hold(fences[which]);
            async move { engine.leases().release(&hold, soon()).await }
        };
        let doing = format!("release of {} {}", label(&claim.owner.holder()), claim.mode);
        self.both(&doing, release, released).await.map(drop)
    }

    async fn abandon(&mut self, at: usize) -> Result<(), Differs> {
        let claim = self.attempts.swap_remove(at).claim;
        let abandon = |engine: Arc<dyn Engine>, _| {
            let claim = claim.clone();
            async move { engine.leases().abandon(&claim, soon()).await }
        };
        let doing = format!("end of {}", label(&claim.owner.holder()));
        self.both(&doing, abandon, |()| "done".into()).await.map(drop)
    }

    async fn renew(&mut self, at: usize) -> Result<(), Differs> {
        let (claim, fences) = self.held(at);
        let renew = |engine: Arc<dyn Engine>, which: usize| {
            let hold = claim.hold(fences[which]);
            async move { engine.leases().renew(&[hold], soon()).await?.remove(0) }
        };
        let kept = |renewed: &Renewed| (*renewed != Renewed::Gone).to_string();
        self.both("renewal", renew, kept).await.map(drop)
    }

    async fn convert(&mut self, at: usize) -> Result<(), Differs> {
        let (claim, fences) = self.held(at);
        let to = if claim.mode == Mode::Shared { Mode::Exclusive } else { Mode::Shared };
        let convert = |engine: Arc<dyn Engine>, which: usize| {
            let hold = claim.hold(fences[which]);
            async move { engine.leases().convert(&hold, to, soon()).await }
        };
        let doing = format!("conversion of {} to {to}", label(&claim.owner.holder()));
        if let [Ok(Converted::Done { fence: here, .. }), Ok(Converted::Done { fence: there, .. })] =
            self.both(&doing, convert, converted).await?
        {
            let attempt = &mut self.attempts[at];
            (attempt.claim.mode, attempt.fences) = (to, Some([here, there]));
        }
        Ok(())
    }

    async fn set_limit(&mut self) -> Result<(), Differs> {
        let limit = NonZeroU32::MIN.saturating_add(self.below(5) as u32);
        let name = self.name.clone();
        let set = |engine: Arc<dyn Engine>, _| {
            let name = name.clone();
            async move { engine.leases().set_limit(&name, limit, soon()).await }
        };
        self.both(&format!("limit {limit}"), set, |()| "done".into()).await.map(drop)
    }

    async fn hand_to(&mut self, at: usize, next: usize) -> Result<(), Differs> {
        let (claim, fences) = self.held(at);
        let next = self.attempts[next].claim.owner.holder();
        let hand = |engine: Arc<dyn Engine>, which: usize| {
            let (hold, next) = (claim.hold(fences[which]), next.clone());
            async move { engine.leases().hand_to(&hold, &next, soon()).await }
        };
        let doing = format!("{} hands to {}", label(&claim.owner.holder()), label(&next));
        if let [Ok(HandedTo::Done { .. }), _] = self.both(&doing, hand, handed).await? {
            self.attempts.swap_remove(at);
        }
        Ok(())
    }

    async fn force_release(&mut self, at: usize) -> Result<(), Differs> {
        let (claim, fences) = self.take(at);
        let force = |engine: Arc<dyn Engine>, which: usize| {
            let (name, seen) = (claim.name.clone(), fences[which]);
            async move { engine.leases().force_release(&name, seen, soon()).await }
        };
        self.both("force-release", force, released).await.map(drop)
    }

    /// What one holds that was told so.
    fn held(&self, at: usize) -> (Claim, [Fence; 2]) {
        let Attempt { claim, fences } = &self.attempts[at];
        (claim.clone(), fences.expect("it was told that it holds the lock"))
    }

    /// The same, of one whose attempt ends.
    fn take(&mut self, at: usize) -> (Claim, [Fence; 2]) {
        let held = self.held(at);
        self.attempts.swap_remove(at);
        held
    }

    async fn seen(&self, which: usize) -> Seen {
        let seen = self.engines[which].inspector().inspect(&self.name, soon()).await;
        let seen = seen.expect("the store answers");
        let holders =
            seen.holders.shown.iter().map(|held| (label(&held.holder), held.mode.kind().to_owned()));
        let waiters = seen.waiters.iter().map(|waits| (label(&waits.holder), waits.mode.to_string()));
        assert_eq!(seen.holders.total as usize, seen.holders.shown.len());
        (holders.collect(), waiters.collect(), seen.limit.map(u32::from))
    }
}

fn permits(take: u32, of: u32) -> Mode {
    let number = |number| NonZeroU32::new(number).expect("more than none");
    Mode::Permits { take: number(take), of: number(of) }
}

fn soon() -> Until {
    Clock::system().now() + LONG
}
