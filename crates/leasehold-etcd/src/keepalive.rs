//! One stream that renews all leases of a client: a stream for each renewal would cost the members a multiple.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use futures_util::future::join_all;
use leasehold_core::{
    clock::{BootInstant, Clock, Until},
    engine::{EngineError, Fault},
};
use tokio::sync::{mpsc, oneshot};

use super::{
    channel::{Members, SILENT},
    proto::{LeaseKeepAliveRequest, LeaseKeepAliveResponse},
    stream_of,
};

const PATH: &str = "/etcdserverpb.Lease/LeaseKeepAlive";

/// How often a lease is asked for again because the stream broke.
const TRIES_MAX: u32 = 3;

/// Who waits for the answers about one lease, first asked first: a member answers in that order.
type Pending = HashMap<i64, VecDeque<oneshot::Sender<i64>>>;

/// The leases of a client.
pub(crate) struct KeepAlive {
    members: Arc<Members>,
    clock: Clock,
    stream: Mutex<Stream>,
}

#[derive(Default)]
struct Stream {
    /// Where requests go; none while there is no stream.
    requests: Option<mpsc::UnboundedSender<LeaseKeepAliveRequest>>,
    pending: Pending,
    number: u64,
    /// The term of the leader that answers.
    term: Option<u64>,
    /// Since when an answer is waited for.
    waits_since: Option<BootInstant>,
}

impl Stream {
    /// Forgets the stream; the next request opens another one.
    fn reset(&mut self) {
        *self = Self { number: self.number + 1, ..Self::default() };
    }
}

impl KeepAlive {
    pub(crate) fn new(members: Arc<Members>, clock: Clock) -> Arc<Self> {
        Arc::new(Self { members, clock, stream: Mutex::default() })
    }

    fn stream(&self) -> MutexGuard<'_, Stream> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renews leases. Each answer is for how many seconds, zero if the lease is over.
    pub(crate) async fn renew(
        self: &Arc<Self>,
        leases: impl IntoIterator<Item = i64>,
        until: Until,
    ) -> Vec<Result<i64, EngineError>> {
        // All leave before the first is waited for.
        let asked: Vec<_> = leases.into_iter().map(|lease| (lease, self.ask(lease))).collect();
        join_all(asked.into_iter().map(|(lease, answer)| self.answer(lease, answer, until))).await
    }

    async fn answer(
        self: &Arc<Self>,
        lease: i64,
        mut answer: oneshot::Receiver<i64>,
        until: Until,
    ) -> Result<i64, EngineError> {
        for _ in 0..TRIES_MAX {
            match self.clock.bounded(until, answer).await {
                Some(Ok(ttl)) => return Ok(ttl),
                // The stream broke, and to renew twice is to renew once.
                Some(Err(_)) => answer = self.ask(lease),
                None => {
                    self.leave_if_silent();
                    return Err(EngineError::no_answer());
                }
            }
        }
        Err(EngineError::new(Fault::NoAnswer, "the stream of keep-alives broke"))
    }

    /// A stream that answered nobody for a while is not waited for again.
    fn leave_if_silent(&self) {
        let mut stream = self.stream();
        let silent = stream.waits_since.is_some_and(|since| self.clock.now().since(since) >= SILENT);
        if silent {
            stream.reset();
        }
    }

    /// Renews one.
    pub(crate) async fn renew_one(self: &Arc<Self>, lease: i64, until: Until) -> Result<i64, EngineError> {
        self.renew([lease], until).await.pop().unwrap_or_else(|| Err(EngineError::no_answer()))
    }

    fn ask(self: &Arc<Self>, lease: i64) -> oneshot::Receiver<i64> {
        let (answer, answered) = oneshot::channel();
        let request = LeaseKeepAliveRequest { id: lease };
        let mut stream = self.stream();
        let is_open = stream
            .requests
            .as_ref()
            .is_some_and(|requests| requests.send(LeaseKeepAliveRequest { id: lease }).is_ok());
        if !is_open {
            stream.reset();
            let (requests, queued) = mpsc::unbounded_channel();
            // In the queue before the stream is awaited: a member answers nothing before the first request.
            let _sent = requests.send(request);
            stream.requests = Some(requests);
            tokio::spawn(read(Arc::downgrade(self), self.members.clone(), stream.number, queued));
        }
        stream.waits_since.get_or_insert(self.clock.now());
        stream.pending.entry(lease).or_default().push_back(answer);
        answered
    }

    fn answered(&self, number: u64, LeaseKeepAliveResponse { header, id, ttl }: LeaseKeepAliveResponse) {
        let mut stream = self.stream();
        if stream.number != number {
            return;
        }
        let Some(waiting) = stream.pending.get_mut(&id) else { return };
        if let Some(answer) = waiting.pop_front() {
            // Its caller may have given up.
            let _heard = answer.send(ttl);
        }
        if waiting.is_empty() {
            stream.pending.remove(&id);
        }
        stream.waits_since = (!stream.pending.is_empty()).then(|| self.clock.now());
        let term = header.map_or(0, |header| header.raft_term);
        if *stream.term.get_or_insert(term) != term {
            // Another one leads now, and is asked from here on.
            stream.reset();
        }
    }

    fn ended(&self, number: u64) {
        let mut stream = self.stream();
        if stream.number == number {
            stream.reset();
        }
    }

    /// Ends the stream; the next request opens another one.
    pub(crate) fn hang_up(&self) {
        self.stream().reset();
    }
}

/// Reads the answers of one stream until it ends.
async fn read(
    of: Weak<KeepAlive>,
    members: Arc<Members>,
    number: u64,
    queued: mpsc::UnboundedReceiver<LeaseKeepAliveRequest>,
) {
    // The others would pass each renewal on to it, one after the other.
    let place = members.leader().await;
    match members.stream::<_, LeaseKeepAliveResponse>(place, PATH, stream_of(queued)).await {
        Err(error) => tracing::debug!(%error, "no stream of keep-alives"),
        Ok(mut answers) => loop {
            match answers.message().await {
                Ok(Some(answer)) => match of.upgrade() {
                    Some(of) => of.answered(number, answer),
                    None => return,
                },
                Ok(None) => break,
                Err(status) => {
                    let error = members.stream_failed(place, &status);
                    tracing::debug!(%error, "the stream of keep-alives broke");
                    break;
                }
            }
        },
    }
    if let Some(of) = of.upgrade() {
        of.ended(number);
    }
}
