//! Brings nodes back that lost their data.
//!
//! A node that was restarted, wiped or rolled back could vote a second time for a name that is still held. Clients watch
//! it until every lease that it might have granted has expired; only then are its fences raised to those of the other
//! nodes, and it votes again. Learning them earlier would miss what was decided meanwhile.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, Weak, atomic::Ordering},
    time::Duration,
};

use futures_util::StreamExt;

use super::{
    Shared,
    membership::{self, Set, VotingStatus},
    no_quorum::NoQuorum,
    round::Answers,
    watch::Watch,
};
use crate::{
    clock::Until,
    engine::{
        EngineError, Fault,
        voter::{NodeStatus, Record, State},
    },
    fence::Fence,
};

/// Time between two looks at nodes that all vote.
const QUIET: Duration = Duration::from_secs(60);
/// Time between two looks at a node that is watched, as part of the whole.
const LOOKS: u32 = 20;
const LOOK_MIN: Duration = Duration::from_millis(20);
const LOOK_MAX: Duration = Duration::from_secs(2);
/// How long the other nodes are waited for once a majority is known to vote.
const SETTLE: Duration = Duration::from_millis(5);

/// The nodes that this client watches, by index.
pub(super) type Watches = HashMap<usize, Watch>;

impl Shared {
    /// A node does not vote. If that is news, it is inspected; otherwise its time is known.
    pub(super) fn abstained(&self, index: usize) {
        if self.members()[index].votes() {
            self.wake.notify_one();
        }
    }

    /// Starts the task that watches nodes, unless it runs: at first use, and when its runtime has ended.
    fn start_readmission(self: &Arc<Self>) {
        let mut task = self.readmission.lock().unwrap_or_else(PoisonError::into_inner);
        if task.as_ref().is_none_or(|task| task.is_finished()) && !self.closed.is_cancelled() {
            let (shared, closed) = (Arc::downgrade(self), self.closed.clone());
            *task = Some(tokio::spawn(async move {
                closed.run_until_cancelled(watch_over(shared)).await;
            }));
        }
    }

    /// Makes sure that a majority is known to vote; asks the nodes only if it is not.
    pub(super) async fn ensure_majority(self: &Arc<Self>, until: Until) -> Result<(), EngineError> {
        if self.voting(&self.members()) >= self.majority() {
            return Ok(());
        }
        self.refresh(until).await
    }

    fn voting(&self, members: &[VotingStatus]) -> usize {
        members.iter().filter(|status| status.votes()).count()
    }

    /// Asks every node for its status, until a majority votes.
    pub(super) async fn refresh(self: &Arc<Self>, until: Until) -> Result<(), EngineError> {
        self.start_readmission();
        let until = until.min(self.clock().now() + self.options.command_timeout);
        let mut asked = self.ask_all(|voter| voter.status(until));
        let mut nodes: Vec<Option<NodeStatus>> = vec![None; self.n()];
        let mut missing = NoQuorum::default();
        let mut voting = 0;
        while voting < self.majority()
            && let Some((index, answer)) = asked.next().await
        {
            match answer {
                Ok(status) => nodes[index] = Some(status),
                Err(error) => missing.fails(self.voters[index].label(), error),
            }
            voting = self.voting(&self.update(&nodes));
        }
        // A vote leaves only for a node that is known to vote: without the others a grant would lie on a bare majority.
        let soon = until.min(self.clock().now() + SETTLE);
        while let Some(Some((index, answer))) = self.clock().bounded(soon, asked.next()).await {
            if let Ok(status) = answer {
                nodes[index] = Some(status);
                voting = self.voting(&self.update(&nodes));
            }
        }
        self.update_late(asked);
        same_server(self, &nodes)?;
        self.wake.notify_one();
        if voting >= self.majority() {
            return Ok(());
        }
        let members = self.members().clone();
        for (index, status) in members.iter().enumerate() {
            // A node that did not answer just now has its error already, whatever is known from before.
            if nodes[index].is_some() && !matches!(status, VotingStatus::Votes(_) | VotingStatus::Unknown) {
                missing.abstains(self.voters[index].label(), self.state(index, status, None));
            }
        }
        Err(missing.into_error(self))
    }

    /// Updates every node that has answered; the others keep what they had, if that was in the same quorum.
    fn update(&self, nodes: &[Option<NodeStatus>]) -> Vec<VotingStatus> {
        let set = membership::set_of(nodes, &self.list);
        let mut members = self.members();
        let strangers = set.as_ref().map_or_else(Vec::new, |set| membership::strangers(&members, set));
        for index in strangers {
            self.voters[index].vote_under(None);
            members[index] = VotingStatus::Unknown;
        }
        for (index, node) in nodes.iter().enumerate() {
            let Some(node) = node else { continue };
            let status = membership::voting_status(node, set.as_ref(), self.n());
            self.set_member(&mut members, index, status);
        }
        members.clone()
    }

    fn set_member(&self, members: &mut [VotingStatus], index: usize, status: VotingStatus) {
        let status = membership::beside(members, index, status);
        self.voters[index].vote_under(match &status {
            VotingStatus::Votes(record) => Some(record.clone()),
            _ => None,
        });
        members[index] = status;
    }

    /// Updates nodes that answer when nobody waits for them any more, unless they are known by then.
    fn update_late(self: &Arc<Self>, mut asked: Answers<NodeStatus>) {
        if asked.is_empty() {
            return;
        }
        let shared = self.clone();
        self.late.spawn(async move {
            while let Some((index, answer)) = asked.next().await {
                let mut members = shared.members();
                let set = membership::set_of_voters(&members);
                if let (Ok(node), Some(set), VotingStatus::Unknown) = (answer, set, &members[index]) {
                    let status = membership::voting_status(&node, Some(&set), shared.n());
                    if status.votes() {
                        shared.set_member(&mut members, index, status);
                    }
                }
            }
        });
    }

    /// The status of every node, or why it did not answer.
    pub(super) async fn statuses(&self, until: Until) -> Vec<Result<NodeStatus, EngineError>> {
        futures_util::future::join_all(self.voters.iter().map(|voter| voter.status(until))).await
    }

    /// Whether a node still belongs to this quorum, asked after another one was found without a record. Answers of one look
    /// may come from before and after all nodes were lost together: that quorum must not be written down again.
    async fn is_remembered(&self, set: &Set) -> bool {
        let answers = self.statuses(self.clock().now() + self.options.command_timeout).await;
        let nodes: Vec<_> = answers.into_iter().map(Result::ok).collect();
        membership::set_of(&nodes, &self.list).as_ref() == Some(set)
    }

    /// Inspects every node, does for each what can be done now, and answers when to look again.
    pub(super) async fn inspect_nodes(&self) -> Duration {
        let mut watches = self.watches.lock().await;
        let by_the_clock = self.by_the_clock.load(Ordering::Relaxed);
        let asked_at = self.clock().now();
        let answers = self.statuses(asked_at + self.options.command_timeout).await;
        let answered_at = self.clock().now();
        let nodes: Vec<_> = answers.into_iter().map(Result::ok).collect();
        let members = self.update(&nodes);
        // A node that does not answer may come back at any time, and then it has probably lost its data.
        let mut look_again = if nodes.contains(&None) { LOOK_MAX } else { QUIET };
        let is_sound = same_server(self, &nodes).is_ok() && !membership::are_divided(&members);
        let set = membership::set_of(&nodes, &self.list).filter(|_| is_sound);
        let Some(set) = set else { return look_again };
        if members.contains(&VotingStatus::Forgot { seen: None }) && !self.is_remembered(&set).await {
            return LOOK_MAX;
        }
        let has_majority = self.voting(&members) >= self.majority();
        if by_the_clock && has_majority {
            // What the operator allowed is done.
            self.by_the_clock.store(false, Ordering::Relaxed);
        }
        // The same for all that come back together: their votes are then equal.
        let floor_by_the_clock = (by_the_clock && !has_majority).then(|| self.floor_by_the_clock(&nodes));
        for (index, node) in nodes.iter().enumerate() {
            let Some(node) = node else { continue };
            match &members[index] {
                VotingStatus::Votes(_) | VotingStatus::Abstains(_) | VotingStatus::Unknown => {
                    watches.remove(&index);
                    self.refusals()[index] = None;
                    continue;
                }
                VotingStatus::Forgot { seen } => {
                    let state = State::Waits { nonce: nonce(), watched_ms: 0 };
                    let record = set.record(self.n(), index, &node.identity, state);
                    if self.write_record(index, seen.as_ref(), &record, Fence::default()).await {
                        look_again = Duration::ZERO;
                    }
                }
                VotingStatus::Waits(record) => {
                    let Some(read) = Watch::of(record, answered_at) else { continue };
                    let known = watches.get(&index).map(|watch| watch.waited_of(&read, asked_at));
                    let floor = membership::floor(index, &nodes, &members).or(floor_by_the_clock);
                    self.count(index, record, known, &set, floor).await;
                    if known.is_none() {
                        look_again = LOOK_MIN;
                    }
                    match watches.get_mut(&index) {
                        Some(watch) => watch.go_on(read),
                        None => drop(watches.insert(index, read)),
                    }
                }
            }
            look_again = look_again.min((set.watch_for() / LOOKS).clamp(LOOK_MIN, LOOK_MAX));
        }
        look_again
    }

    /// Writes how long a node has waited, or that it votes if it had waited long enough before the others were asked.
    async fn count(
        &self,
        index: usize,
        record: &Record,
        known: Option<Duration>,
        set: &Set,
        floor: Option<Fence>,
    ) {
        let (State::Waits { nonce, watched_ms }, Some(waited)) = (&record.state, known) else { return };
        if let Some(floor) = floor.filter(|_| waited >= set.watch_for()) {
            let next = Record { state: State::Votes, ..record.clone() };
            if self.write_record(index, Some(record), &next, floor).await {
                tracing::info!(node = self.voters[index].label(), "votes again");
                self.set_member(&mut self.members(), index, VotingStatus::Votes(next));
            }
            return;
        }
        // Without anybody to learn from it goes on waiting, and people see that its time is over.
        let counted_ms = waited.min(set.watch_for()).as_millis() as u64;
        if counted_ms > *watched_ms {
            let state = State::Waits { nonce: nonce.clone(), watched_ms: counted_ms };
            let next = Record { state, ..record.clone() };
            self.write_record(index, Some(record), &next, Fence::default()).await;
        }
    }

    async fn write_record(&self, index: usize, seen: Option<&Record>, record: &Record, floor: Fence) -> bool {
        let until = self.clock().now() + self.options.command_timeout;
        let written = self.voters[index].write_record(seen, record, floor, until).await;
        let refusal = written.as_ref().err().map(ToString::to_string);
        let before = std::mem::replace(&mut self.refusals()[index], refusal.clone());
        if let Some(error) = refusal.filter(|refusal| before.as_ref() != Some(refusal)) {
            tracing::warn!(node = self.voters[index].label(), error, "its record cannot be written");
        }
        written.unwrap_or(false)
    }
}

async fn watch_over(shared: Weak<Shared>) {
    loop {
        let Some(strong) = shared.upgrade() else { return };
        let pause = strong.inspect_nodes().await;
        let (clock, wake) = (strong.clock().clone(), strong.wake.clone());
        drop(strong);
        tokio::select! {
            biased;
            () = wake.notified() => clock.sleep_until(clock.now() + LOOK_MIN).await,
            () = clock.sleep_until(clock.now() + pause) => {}
        }
    }
}

/// Two addresses of one server would count its vote twice.
pub(super) fn same_server(shared: &Shared, nodes: &[Option<NodeStatus>]) -> Result<(), EngineError> {
    for (index, one) in nodes.iter().enumerate() {
        let twin = nodes[..index].iter().position(
            |other| matches!((one, other), (Some(one), Some(other)) if one.identity == other.identity),
        );
        if let Some(twin) = twin {
            let (a, b) = (shared.voters[twin].label(), shared.voters[index].label());
            let why = format!("{a} and {b} are one server; a quorum takes independent ones");
            return Err(EngineError::new(Fault::Unsupported, why));
        }
    }
    Ok(())
}

pub(super) fn nonce() -> String {
    let mut random = [0; 8];
    getrandom::fill(&mut random).expect("the operating system gives random numbers");
    format!("{:016x}", u64::from_le_bytes(random))
}
