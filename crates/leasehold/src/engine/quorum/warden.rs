//! Brings nodes back that may have forgotten what they voted for.
//!
//! A node that was restarted, wiped or rolled back could vote a second time for a name that is still held. It is
//! watched, on this client's own clock, until everything it may have voted for has run out; only then are its fences
//! raised to what the other nodes know, and it votes again. Learning earlier would miss what was decided meanwhile.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::StreamExt;
use tokio::sync::Notify;

use super::{
    Shared,
    excuses::Excuses,
    round::Answers,
    seats::{self, Seat, Set},
};
use crate::{
    clock::{BootInstant, Until},
    engine::{
        EngineError, Fault,
        voter::{Abstention, Record, Standing, State},
    },
    fence::Fence,
};

/// Wakes the warden before its time.
pub(super) type Bell = Arc<Notify>;

/// Time between two looks at nodes that all vote.
const QUIET: Duration = Duration::from_secs(60);
/// Time between two looks at a node that is watched, as part of the whole.
const LOOKS: u32 = 20;
const LOOK_MIN: Duration = Duration::from_millis(20);
const LOOK_MAX: Duration = Duration::from_secs(2);
/// How long the other nodes are waited for once a majority is known to vote.
const SETTLE: Duration = Duration::from_millis(5);

/// Since when a node is watched by this client, and what its record said then.
struct Watch {
    record: Record,
    since: BootInstant,
}

impl Shared {
    /// A node does not vote. If that is news, it is looked at; otherwise its time is known.
    pub(super) fn lost_seat(&self, index: usize) {
        if self.seats()[index].votes() {
            self.ring();
        }
    }

    /// Look at once.
    pub(super) fn ring(&self) {
        if let Some(bell) = self.warden.get() {
            bell.notify_one();
        }
    }

    /// Starts the warden with the first use: before there may be no runtime.
    fn start_warden(self: &Arc<Self>) {
        self.warden.get_or_init(|| {
            let bell = Bell::default();
            let (shared, heard, closed) = (Arc::downgrade(self), bell.clone(), self.closed.clone());
            tokio::spawn(async move {
                closed.run_until_cancelled(watch_over(shared, heard)).await;
            });
            bell
        });
    }

    /// Makes sure that a majority of seats is known; asks the nodes only if it is not.
    pub(super) async fn ensure_seats(self: &Arc<Self>, until: Until) -> Result<(), EngineError> {
        if self.seats().iter().filter(|seat| seat.votes()).count() >= self.majority() {
            return Ok(());
        }
        self.take_seats(until).await
    }

    /// Asks every node where it stands, until a majority votes.
    pub(super) async fn take_seats(self: &Arc<Self>, until: Until) -> Result<(), EngineError> {
        self.start_warden();
        let until = until.min(self.clock().now() + self.options.command_timeout);
        let mut asked = self.ask_all(|voter| voter.standing(until));
        let mut standings: Vec<Option<Standing>> = vec![None; self.n()];
        let mut excuses = Excuses::default();
        let mut voting = 0;
        while voting < self.majority()
            && let Some((index, answer)) = asked.next().await
        {
            match answer {
                Ok(standing) => standings[index] = Some(standing),
                Err(error) => excuses.fails(self.voters[index].label(), error),
            }
            voting = self.place(&standings).iter().filter(|seat| seat.votes()).count();
        }
        // A vote leaves only for a node whose seat is known: without the others a grant would lie on a bare majority.
        let soon = until.min(self.clock().now() + SETTLE);
        while let Some(Some((index, answer))) = self.clock().bounded(soon, asked.next()).await {
            if let Ok(standing) = answer {
                standings[index] = Some(standing);
                voting = self.place(&standings).iter().filter(|seat| seat.votes()).count();
            }
        }
        self.place_late(asked);
        same_server(self, &standings)?;
        self.ring();
        if voting >= self.majority() {
            return Ok(());
        }
        for (index, seat) in self.seats().iter().enumerate() {
            // Who did not answer just now has its excuse already, whatever is known from before.
            if standings[index].is_some() && !matches!(seat, Seat::Votes(_) | Seat::Unknown) {
                excuses.abstains(self.voters[index].label(), seat, Abstention::NotAdmitted);
            }
        }
        Err(excuses.into_error(self))
    }

    /// Seats every node that has answered; the others keep what they had, if that was in the same quorum.
    fn place(&self, standings: &[Option<Standing>]) -> Vec<Seat> {
        let set = seats::set_of(standings, &self.list);
        let mut places = self.seats();
        let strangers = set.as_ref().map_or_else(Vec::new, |set| seats::strangers(&places, set));
        for index in strangers {
            self.voters[index].seat(None);
            places[index] = Seat::Unknown;
        }
        for (index, standing) in standings.iter().enumerate() {
            let Some(standing) = standing else { continue };
            let seat = seats::seat(standing, set.as_ref(), self.n(), self.options.admit_new);
            let seat = seats::beside(&places, index, seat);
            self.voters[index].seat(match &seat {
                Seat::Votes(record) => Some(record.clone()),
                _ => None,
            });
            places[index] = seat;
        }
        places.clone()
    }

    /// Seats nodes that answer when nobody waits for them any more, unless the warden has been there first.
    fn place_late(self: &Arc<Self>, mut asked: Answers<Standing>) {
        if asked.is_empty() {
            return;
        }
        let shared = self.clone();
        self.late.spawn(async move {
            while let Some((index, answer)) = asked.next().await {
                if let Ok(standing) = answer {
                    shared.place_one(index, &standing);
                }
            }
        });
    }

    fn place_one(&self, index: usize, standing: &Standing) {
        let mut places = self.seats();
        let Some(set) = seats::set_of_seats(&places) else { return };
        if places[index] != Seat::Unknown {
            return;
        }
        let seat = seats::seat(standing, Some(&set), self.n(), false);
        let seat = seats::beside(&places, index, seat);
        if let Seat::Votes(record) = &seat {
            self.voters[index].seat(Some(record.clone()));
            places[index] = seat;
        }
    }

    /// What every node says about itself; `None` for those that do not answer.
    pub(super) async fn standings(&self, until: Until) -> Vec<Result<Standing, EngineError>> {
        futures_util::future::join_all(self.voters.iter().map(|voter| voter.standing(until))).await
    }

    /// Looks at every node, does for each what can be done now, and tells when to look again.
    async fn patrol(&self, watches: &mut HashMap<usize, Watch>) -> Duration {
        let asked_at = self.clock().now();
        let answers = self.standings(asked_at + self.options.command_timeout).await;
        let answered_at = self.clock().now();
        let standings: Vec<_> = answers.into_iter().map(Result::ok).collect();
        let seats = self.place(&standings);
        let set = seats::set_of(&standings, &self.list).or_else(|| self.new_set(&standings));
        // A node that does not answer may come back at any time, and then it has probably forgotten.
        let mut look_again = if standings.contains(&None) { LOOK_MAX } else { QUIET };
        let is_sound = same_server(self, &standings).is_ok() && !seats::are_divided(&seats);
        let Some(set) = set.filter(|_| is_sound) else { return look_again };
        // The same for all that come back together: their votes are then equal.
        let floor_of_new = self.floor_of_new(&standings, &seats);
        for (index, standing) in standings.iter().enumerate() {
            let Some(standing) = standing else { continue };
            let (seat, is_new) = match &seats[index] {
                // Of the quorum that is about to be made.
                Seat::Abstains(Abstention::NotAdmitted) => (&Seat::Forgot { seen: None }, true),
                Seat::Forgot { seen: Some(record) } => (&seats[index], seats::never_voted(record)),
                seat => (seat, false),
            };
            match seat {
                Seat::Votes(_) | Seat::Abstains(_) | Seat::Unknown => {
                    watches.remove(&index);
                    continue;
                }
                Seat::Forgot { seen } => {
                    watches.remove(&index);
                    let nonce = if is_new { format!("{}{}", seats::NEW, nonce()) } else { nonce() };
                    let state = State::Waits { nonce, watched_ms: 0 };
                    let record = set.record(self.n(), index, &standing.identity, state);
                    if self.mark(index, seen.as_ref(), &record, Fence::default()).await {
                        look_again = Duration::ZERO;
                    }
                }
                Seat::Waits(record) => {
                    let watch =
                        watches.entry(index).or_insert(Watch { record: record.clone(), since: answered_at });
                    if watch.record != *record {
                        // Another client has counted on, or it began anew.
                        *watch = Watch { record: record.clone(), since: answered_at };
                    }
                    let by_the_clock = floor_of_new.filter(|_| self.goes_by_the_clock(record));
                    let floor = seats::floor(index, &standings, &seats).or(by_the_clock);
                    self.watch(index, watch, asked_at, &set, floor).await;
                }
            }
            look_again = look_again.min((set.watch_for() / LOOKS).clamp(LOOK_MIN, LOOK_MAX));
        }
        look_again
    }

    /// Counts on for a watched node; admits it if it was watched for long enough before the others were asked.
    async fn watch(
        &self,
        index: usize,
        watch: &mut Watch,
        asked_at: BootInstant,
        set: &Set,
        floor: Option<Fence>,
    ) {
        let State::Waits { nonce, watched_ms } = &watch.record.state else { return };
        let watched = Duration::from_millis(*watched_ms) + asked_at.since(watch.since);
        let next = if watched >= set.watch_for() && floor.is_some() {
            State::Votes
        } else {
            // Without anybody to learn from it goes on waiting, and people see that its time is over.
            let watched = watched.min(set.watch_for());
            State::Waits { nonce: nonce.clone(), watched_ms: watched.as_millis() as u64 }
        };
        let record = Record { state: next, ..watch.record.clone() };
        if record != watch.record
            && self
                .mark(
                    index,
                    Some(&watch.record),
                    &record,
                    floor.filter(|_| record.state == State::Votes).unwrap_or_default(),
                )
                .await
        {
            if record.state == State::Votes {
                tracing::info!(node = self.voters[index].label(), "votes again");
                let mut places = self.seats();
                let seat = seats::beside(&places, index, Seat::Votes(record.clone()));
                self.voters[index].seat(seat.votes().then_some(record));
                places[index] = seat;
                return;
            }
            *watch = Watch { record, since: self.clock().now() };
        }
    }

    async fn mark(&self, index: usize, seen: Option<&Record>, record: &Record, floor: Fence) -> bool {
        let until = self.clock().now() + self.options.command_timeout;
        match self.voters[index].mark(seen, record, floor, until).await {
            Ok(done) => done,
            Err(error) => {
                tracing::debug!(node = self.voters[index].label(), %error, "could not write its record");
                false
            }
        }
    }
}

async fn watch_over(shared: Weak<Shared>, bell: Bell) {
    let mut watches = HashMap::new();
    loop {
        let Some(strong) = shared.upgrade() else { return };
        let pause = strong.patrol(&mut watches).await;
        let clock = strong.clock().clone();
        drop(strong);
        tokio::select! {
            biased;
            () = bell.notified() => clock.sleep_until(clock.now() + LOOK_MIN).await,
            () = clock.sleep_until(clock.now() + pause) => {}
        }
    }
}

/// Two addresses of one server would count its vote twice.
pub(super) fn same_server(shared: &Shared, standings: &[Option<Standing>]) -> Result<(), EngineError> {
    for (index, one) in standings.iter().enumerate() {
        let twin = standings[..index].iter().position(
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
