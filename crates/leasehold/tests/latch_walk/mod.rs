//! A store decides about latches as the pure decider does: the same random steps on it and on the store in memory, which is that
//! decider behind a mutex, lead to the same answers, participants and generations.

use std::{collections::HashMap, sync::Arc, time::Duration};

use rand::{RngExt, SeedableRng, rngs::StdRng};

use leasehold::{
    Clock, Leasehold, Name,
    clock::Until,
    engine::{
        Engine, EngineError, Renewed,
        latches::{Answer, Kind, Op, Request, Said, Snapshot, Standing},
    },
    owner::{Holder, Owner},
};

/// For things that take a moment on a busy machine.
const LONG: Duration = Duration::from_secs(60);
const STEPS: usize = 60;
/// A lease that ends before the next step: nothing is asked while it may have ended in one store and not in the other.
const SHORT: Duration = Duration::from_millis(60);

struct Walk {
    stores: [Arc<dyn Engine>; 2],
    random: StdRng,
    name: Name,
    kind: Kind,
    /// The number of its first participant: walks share an engine, which knows who has ended.
    first: u128,
    /// Generations by their number in order of appearance, in the store and in memory: they are times.
    generations: Vec<[u64; 2]>,
    /// How often each participant has left: it comes back under another owner value.
    left: [u128; 6],
    /// What was done, and what came of it.
    steps: Vec<String>,
}

fn owner(random: u128) -> Owner {
    Owner::new(random, &Holder::this_process(&random.to_string(), 1))
}

fn soon() -> Until {
    Clock::system().now() + LONG
}

fn words(said: &Said) -> String {
    match said {
        Said::Stands(Standing::Broken { who }) => {
            format!("broken by {}", who.as_ref().map_or("nobody".into(), ToString::to_string))
        }
        said => format!("{said:?}"),
    }
}

impl Walk {
    /// Asks both stores and compares their words.
    async fn both(&mut self, request: [Request; 2]) {
        let mut answers = Vec::new();
        for (store, request) in self.stores.iter().zip(&request) {
            answers.push(store.latches().unwrap().ask(request, soon()).await);
        }
        let doing = format!("{} {:?} of {}", request[0].owner.holder(), request[0].op, request[0].count);
        let said = |answer: &Result<Answer, EngineError>| match answer {
            Ok(answer) => words(&answer.said),
            Err(error) => format!("{:?}", error.fault),
        };
        self.steps.push(format!("{doing} => {}", said(&answers[1])));
        assert_eq!(said(&answers[0]), said(&answers[1]), "{:#?}", self.steps);
        if let [Ok(store), Ok(memory)] = &answers[..] {
            let present = [store.generation, memory.generation];
            assert_eq!(store.generation == 0, memory.generation == 0, "{:#?}", self.steps);
            match self.generations.iter().rfind(|known| known[0] == present[0] || known[1] == present[1]) {
                Some(known) => assert_eq!(*known, present, "{:#?}", self.steps),
                None if present[0] > 0 => self.generations.push(present),
                None => {}
            }
            assert_eq!(store.first_ends_in.is_some(), memory.first_ends_in.is_some(), "{:#?}", self.steps);
        }
    }

    async fn step(&mut self) {
        let place = self.random.random_range(1..=5_usize);
        let number = self.first + place as u128 + 10 * self.left[place];
        let generation = match self.random.random_range(0..10) {
            0 => [1, 1],
            1 => [1 << 52, 1 << 52],
            2 | 3 if !self.generations.is_empty() => {
                self.generations[self.random.random_range(0..self.generations.len())]
            }
            _ => self.generations.last().copied().unwrap_or([1, 1]),
        };
        let (ttl, breaks) =
            (if self.random.random_ratio(1, 12) { SHORT } else { LONG }, self.random.random());
        let is_named = self.random.random_ratio(2, 3);
        let step = self.random.random_range(0..20);
        let op = |store: usize| match step {
            0..=5 => Op::Join { ttl },
            6..=11 => Op::CountDown { generation: generation[store] },
            12 => Op::Leave { breaks },
            13 | 14 => Op::Look { generation: is_named.then_some(generation[store]), wake: breaks },
            _ => Op::Rearm { generation: generation[store] },
        };
        match step {
            18 | 19 => return self.renew(number).await,
            _ => {}
        }
        self.left[place] += u128::from(step == 12);
        let count = if self.random.random_ratio(1, 15) { 4 } else { 3 };
        let other = if self.kind == Kind::Latch { Kind::Barrier } else { Kind::Latch };
        let kind = if self.random.random_ratio(1, 40) { other } else { self.kind };
        let request = [0, 1].map(|store| Request {
            name: self.name.clone(),
            kind,
            count: count.try_into().unwrap(),
            owner: owner(number),
            op: op(store),
        });
        self.both(request).await;
        if ttl == SHORT && step <= 5 {
            tokio::time::sleep(SHORT * 2).await;
        }
    }

    async fn renew(&mut self, number: u128) {
        let op = Op::Leave { breaks: false };
        let (name, count) = (self.name.clone(), 3.try_into().unwrap());
        let hold = Request { name, kind: self.kind, count, owner: owner(number), op }.hold(0, LONG);
        let mut renewed = Vec::new();
        for store in &self.stores {
            let answer = store.leases().renew(std::slice::from_ref(&hold), soon()).await.unwrap().remove(0);
            renewed.push(answer.unwrap() != Renewed::Gone);
        }
        self.steps.push(format!("{} renewed => {}", owner(number).holder(), renewed[1]));
        assert_eq!(renewed[0], renewed[1], "{:#?}", self.steps);
    }

    /// What people see, without times.
    async fn state(&self, store: usize) -> Option<(Snapshot, usize)> {
        let seen = self.stores[store].latches().unwrap().state(&self.name, soon()).await.unwrap()?;
        let nth = self.generations.iter().position(|known| known[store] == seen.generation);
        let mut seen = Snapshot { generation: 0, ..seen };
        seen.participants.iter_mut().for_each(|party| party.expires_in = party.expires_in.map(|_| LONG));
        seen.participants.sort_by_key(|party| party.holder.to_string());
        Some((seen, nth.expect("a generation that was answered")))
    }
}

/// Takes walks of latches and of barriers, and returns how often each word was said.
pub(crate) async fn walk(store: &Arc<dyn Engine>, walks: u64) -> HashMap<String, u32> {
    let walks = (0..walks).map(|seed| {
        let memory = Leasehold::builder(format!("memory:latches{seed}")).into_engine().unwrap();
        let kind = if seed % 2 == 0 { Kind::Latch } else { Kind::Barrier };
        let mut walk = Walk {
            stores: [store.clone(), memory],
            random: StdRng::seed_from_u64(seed),
            name: Name::new(format!("walk{seed}")).unwrap(),
            kind,
            first: u128::from(seed) * 1_000_000,
            generations: Vec::new(),
            left: [0; 6],
            steps: Vec::new(),
        };
        tokio::spawn(async move {
            for step in 0..STEPS {
                walk.step().await;
                let (store, memory) = (walk.state(0).await, walk.state(1).await);
                assert_eq!(store, memory, "walk {seed}, step {step}: {:#?}", walk.steps);
            }
            walk.steps
        })
    });
    let mut said = HashMap::<String, u32>::new();
    for walk in walks.collect::<Vec<_>>() {
        for step in walk.await.unwrap() {
            let word = step.rsplit(" => ").next().unwrap_or_default();
            let word = word.split([' ', '(']).next().unwrap_or_default();
            *said.entry(word.to_owned()).or_default() += 1;
        }
    }
    said
}

/// A walk that never gets anywhere proves nothing.
pub(crate) fn assert_varied(said: &HashMap<String, u32>) {
    for word in ["Joined", "Full", "Counted", "Left", "Rearmed", "OtherGeneration", "Stranger", "broken"] {
        assert!(said.get(word).is_some_and(|times| *times > 10), "{word}: {said:?}");
    }
}
