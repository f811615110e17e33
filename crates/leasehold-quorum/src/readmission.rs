//! Readmits nodes that lost their data.
//!
//! A node that was restarted, wiped or rolled back could vote a second time for a name that is still held. Clients watch
//! it until every lease that it might have granted has expired; only then are its fences raised to those of the other
//! nodes, and it votes again. Learning them earlier would miss what was decided meanwhile.

use std::sync::{Arc, Weak, atomic::Ordering};
use std::{collections::HashMap, time::Duration};

use futures_util::StreamExt;

use super::membership::{self, Statuses, VotingStatus, watch_for};
use super::{Result, Shared, locked, no_quorum::no_quorum, watch::Watch};
use leasehold_core::engine::voter::{NodeStatus, Record, State};
use leasehold_core::engine::{EngineError, Fault};
use leasehold_core::{Fence, clock::Until};

/// Time between two inspections of nodes that all vote.
const QUIET: Duration = Duration::from_secs(60);
/// Inspections of a node that is watched, in the time for which it is, and the bounds of the time between two of them.
const INSPECTIONS: u32 = 20;
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// How long the other nodes are waited for once a majority is known to vote: by a claim, and by an inspection.
const SETTLE: Duration = Duration::from_millis(5);
const SETTLE_INSPECTION: Duration = Duration::from_millis(500);
/// Waits for every node.
pub(super) const ALL: Duration = Duration::MAX;

/// The nodes that this client watches, by index.
pub(super) type Watches = HashMap<usize, Watch>;

impl Shared {
    /// Starts the task that watches nodes, unless it runs: at first use, and when its runtime has ended.
    fn start_readmission(self: &Arc<Self>) {
        let mut task = locked(&self.readmission);
        if task.as_ref().is_none_or(|task| task.is_finished()) && !self.closed.is_cancelled() {
            let (shared, closed) = (Arc::downgrade(self), self.closed.clone());
            *task = Some(tokio::spawn(async move {
                closed.run_until_cancelled(watch_over(shared)).await;
            }));
        }
    }

    pub(super) fn has_majority(&self, members: &[VotingStatus]) -> bool {
        members.iter().filter(|status| status.votes()).count() >= self.majority()
    }

    /// Asks every node for its status, until a majority votes.
    pub(super) async fn refresh(self: &Arc<Self>, until: Until) -> Result<()> {
        self.start_readmission();
        let until = until.min(self.clock().now() + self.options.command_timeout);
        // A vote leaves only for a node that is known to vote: without the others a grant would lie on a bare majority.
        let nodes = self.statuses(SETTLE, until).await;
        let members = self.update(&nodes);
        self.check_independent(&nodes)?;
        self.wake.notify_one();
        if self.has_majority(&members) {
            return Ok(());
        }
        let reported = nodes.into_iter().enumerate().filter_map(|(index, node)| match node {
            Err(error) => Some((index, Err(error))),
            Ok(_) if members[index].votes() => None,
            Ok(_) => Some((index, Ok(self.state(index, &members[index], None)))),
        });
        Err(no_quorum(&self.voters, reported.collect()))
    }

    /// Updates every node that has answered; the others keep what they had, if that was in the same quorum.
    fn update(&self, nodes: &Statuses) -> Vec<VotingStatus> {
        let mut members = locked(&self.members);
        membership::update(&mut members, nodes, &self.list);
        for (voter, status) in self.voters.iter().zip(members.iter()) {
            voter.vote_under(status.record().cloned());
        }
        members.clone()
    }

    /// The status of every node, or why it did not answer. Once a majority votes the others have `settle` to answer.
    pub(super) async fn statuses(&self, settle: Duration, until: Until) -> Vec<Result<NodeStatus>> {
        let mut asked = self.ask_all(&(), move |voter, ()| voter.status(until));
        let mut nodes = vec![Err(EngineError::no_answer()); self.n()];
        let mut patience = until;
        while let Some(Some((index, node))) = self.clock().bounded(patience, asked.next()).await {
            nodes[index] = node;
            let mut statuses = vec![VotingStatus::Unknown; self.n()];
            membership::update(&mut statuses, &nodes, &self.list);
            if self.has_majority(&statuses) {
                patience = patience.min(self.clock().now() + settle);
            }
        }
        nodes
    }

    /// Two addresses of one server would count its vote twice.
    pub(super) fn check_independent(&self, nodes: &Statuses) -> Result<()> {
        for (index, node) in nodes.iter().enumerate() {
            let Ok(node) = node else { continue };
            let is_same =
                |other: &Result<NodeStatus, _>| matches!(other, Ok(other) if other.identity == node.identity);
            if let Some(twin) = nodes[..index].iter().position(is_same) {
                let (a, b) = (self.voters[twin].label(), self.voters[index].label());
                let why = format!("{a} and {b} are one server; a quorum takes independent ones");
                return Err(EngineError::new(Fault::Unsupported, why));
            }
        }
        Ok(())
    }

    /// Whether a node still belongs to this quorum, asked after another one was found without a record. Answers of one
    /// inspection may come from before and after all nodes were lost together: that quorum must not be written down again.
    async fn is_remembered(&self, quorum: &Record) -> bool {
        let nodes = self.statuses(ALL, self.clock().now() + self.options.command_timeout).await;
        membership::quorum_of(&nodes, &self.list).is_some_and(|record| record.is_same_quorum(quorum))
    }

    /// Inspects every node, does for each what can be done now, and returns when to inspect them again.
    pub(super) async fn inspect_nodes(&self) -> Duration {
        let mut watches = self.watches.lock().await;
        let by_the_clock = self.by_the_clock.load(Ordering::Relaxed);
        let asked_at = self.clock().now();
        let nodes = self.statuses(SETTLE_INSPECTION, asked_at + self.options.command_timeout).await;
        let answered_at = self.clock().now();
        let members = self.update(&nodes);
        // A node that does not answer may come back at any time, and then it has probably lost its data.
        let mut pause = if nodes.iter().any(Result::is_err) { PAUSE_MAX } else { QUIET };
        let is_sound = self.check_independent(&nodes).is_ok() && !membership::are_divided(&members);
        let quorum = membership::quorum_of(&nodes, &self.list).filter(|_| is_sound);
        let Some(quorum) = quorum else { return pause };
        if members.contains(&VotingStatus::Forgot { seen: None }) && !self.is_remembered(quorum).await {
            return PAUSE_MAX;
        }
        let has_majority = self.has_majority(&members);
        if by_the_clock && has_majority {
            // What the operator allowed is done.
            self.by_the_clock.store(false, Ordering::Relaxed);
        }
        // The same for all that come back together: their votes are then equal.
        let floor_by_the_clock =
            (by_the_clock && !has_majority).then(|| membership::floor_by_the_clock(&nodes));
        for (index, node) in nodes.iter().enumerate() {
            let Ok(node) = node else { continue };
            match &members[index] {
                VotingStatus::Votes(_) | VotingStatus::Abstains(_) | VotingStatus::Unknown => {
                    watches.remove(&index);
                    locked(&self.refusals)[index] = None;
                    continue;
                }
                VotingStatus::Forgot { seen } => {
                    let state = State::Waits { nonce: nonce(), watched_ms: 0 };
                    let record = quorum.of_node(index, &node.identity, state);
                    if self.write_record(index, seen.as_ref(), &record, Fence::default()).await {
                        pause = Duration::ZERO;
                    }
                }
                VotingStatus::Waits(record) => {
                    match watches.get(&index).and_then(|watch| watch.waited(record, asked_at)) {
                        Some(waited) => {
                            let floor = membership::floor(index, &nodes, &members).or(floor_by_the_clock);
                            self.count(index, record, waited, floor).await;
                        }
                        None => pause = PAUSE_MIN,
                    }
                    let read = Watch { record: record.clone(), read_at: answered_at };
                    watches.entry(index).or_insert_with(|| read.clone()).go_on(read);
                }
            }
            pause = pause.min((watch_for(quorum) / INSPECTIONS).clamp(PAUSE_MIN, PAUSE_MAX));
        }
        pause
    }

    /// Writes how long a node has waited, or that it votes if it had waited long enough before the others were asked.
    async fn count(&self, index: usize, record: &Record, waited: Duration, floor: Option<Fence>) {
        let State::Waits { nonce, watched_ms } = &record.state else { return };
        if let Some(floor) = floor.filter(|_| waited >= watch_for(record)) {
            let next = Record { state: State::Votes, ..record.clone() };
            if self.write_record(index, Some(record), &next, floor).await {
                tracing::info!(node = self.voters[index].label(), "votes again");
                self.voters[index].vote_under(Some(next.clone()));
                locked(&self.members)[index] = VotingStatus::Votes(next);
            }
            return;
        }
        // Without nodes to learn from it goes on waiting, and people see that its time is over.
        let counted_ms = waited.min(watch_for(record)).as_millis() as u64;
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
        let before = std::mem::replace(&mut locked(&self.refusals)[index], refusal.clone());
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
            () = wake.notified() => clock.sleep_until(clock.now() + PAUSE_MIN).await,
            () = clock.sleep_until(clock.now() + pause) => {}
        }
    }
}

pub(super) fn nonce() -> String {
    let mut random = [0; 8];
    getrandom::fill(&mut random).expect("the operating system gives random numbers");
    format!("{:016x}", u64::from_le_bytes(random))
}
