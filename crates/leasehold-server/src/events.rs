//! What changes, as server-sent events: a snapshot, then deltas; a client that was cut off goes on where it was.

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::{Stream, stream};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::broadcast::{self, error::RecvError};

use crate::{
    auth::{Caller, Right},
    problem::{Problem, Result},
    state::App,
    views::LockRow,
};

/// Messages kept for clients that were cut off.
const KEPT: usize = 1_000;
/// Messages that a slow client may be behind before it gets a snapshot instead.
const BEHIND: usize = 256;
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Most locks in one message.
pub(crate) const CHANGED_MAX: usize = 500;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Topic {
    Overview,
    Locks,
    Audit,
    Playground,
    /// For everybody.
    Service,
}

impl Topic {
    const ALL: [(&'static str, Self); 4] = [
        ("overview", Self::Overview),
        ("locks", Self::Locks),
        ("audit", Self::Audit),
        ("playground", Self::Playground),
    ];
}

/// The locks that changed since the poll before.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct LocksChanged {
    pub(crate) seq: u64,
    pub(crate) at_ms: u64,
    pub(crate) changed: Vec<LockRow>,
    pub(crate) removed: Vec<String>,
    /// More changed than one message takes: fetch the list again.
    pub(crate) more: bool,
}

#[derive(Debug)]
struct Message {
    id: u64,
    topic: Topic,
    event: &'static str,
    data: Data,
}

#[derive(Debug)]
enum Data {
    Text(String),
    Locks(LocksChanged),
}

#[derive(Debug)]
pub(crate) struct Events {
    kept: Mutex<Kept>,
    sender: broadcast::Sender<Arc<Message>>,
    clients: AtomicUsize,
    most: usize,
}

#[derive(Debug, Default)]
struct Kept {
    last: u64,
    messages: VecDeque<Arc<Message>>,
}

impl Events {
    pub(crate) fn new(most: usize) -> Self {
        let sender = broadcast::Sender::new(BEHIND);
        Self { kept: Mutex::default(), sender, clients: AtomicUsize::new(0), most }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn clients(&self) -> usize {
        self.clients.load(Ordering::Relaxed)
    }

    pub(crate) fn publish(&self, topic: Topic, event: &'static str, data: &impl Serialize) {
        match serde_json::to_string(data) {
            Ok(text) => self.send(topic, event, Data::Text(text)),
            Err(error) => tracing::error!(event, %error, "an event could not be written"),
        }
    }

    pub(crate) fn publish_locks(&self, changed: LocksChanged) {
        self.send(Topic::Locks, "locks", Data::Locks(changed));
    }

    fn send(&self, topic: Topic, event: &'static str, data: Data) {
        let mut kept = self.kept();
        kept.last += 1;
        let message = Arc::new(Message { id: kept.last, topic, event, data });
        if kept.messages.len() >= KEPT {
            kept.messages.pop_front();
        }
        kept.messages.push_back(message.clone());
        let _nobody_listens = self.sender.send(message);
    }

    /// What a client missed after a message, or `None` if that is not known any more; and what comes from now on.
    fn subscribe(&self, after: Option<u64>) -> (u64, Missed, broadcast::Receiver<Arc<Message>>) {
        let kept = self.kept();
        let oldest = kept.last + 1 - kept.messages.len() as u64;
        let missed = after
            .filter(|after| *after <= kept.last && after + 1 >= oldest)
            .map(|after| kept.messages.iter().filter(|message| message.id > after).cloned().collect());
        (kept.last, missed, self.sender.subscribe())
    }
}

/// What a client missed, or `None` if that is not known any more.
type Missed = Option<Vec<Arc<Message>>>;

/// What one client wants, and may see.
#[derive(Debug)]
pub(crate) struct Wanted {
    topics: Vec<Topic>,
    prefix: String,
    caller: Caller,
}

impl Wanted {
    /// Reads a list of topics, all of them if it is empty.
    pub(crate) fn new(topics: &str, prefix: String, caller: Caller) -> Result<Self> {
        let read = |word: &str| {
            let found = Topic::ALL.iter().find(|(name, _)| *name == word).map(|(_, topic)| *topic);
            found.ok_or_else(|| Problem::invalid("topics are a list of: overview, locks, audit, playground"))
        };
        let topics = match topics {
            "" => Topic::ALL.iter().map(|(_, topic)| *topic).collect(),
            topics => topics.split(',').map(|word| read(word.trim())).collect::<Result<_>>()?,
        };
        Ok(Self { topics, prefix, caller })
    }

    fn sees_all(&self) -> bool {
        self.caller.may(Right::Read, "")
    }

    /// What of a message this client gets.
    fn text(&self, message: &Message) -> Option<String> {
        let is_wanted = message.topic == Topic::Service || self.topics.contains(&message.topic);
        let is_allowed =
            self.sees_all() || matches!(message.topic, Topic::Locks | Topic::Service | Topic::Playground);
        if !is_wanted || !is_allowed {
            return None;
        }
        match &message.data {
            Data::Text(text) => Some(text.clone()),
            Data::Locks(all) => {
                let is_shown =
                    |name: &str| name.starts_with(&self.prefix) && self.caller.may(Right::Read, name);
                let changed: Vec<_> = all.changed.iter().filter(|row| is_shown(&row.name)).cloned().collect();
                let removed: Vec<_> = all.removed.iter().filter(|name| is_shown(name)).cloned().collect();
                if changed.is_empty() && removed.is_empty() && !all.more {
                    return None;
                }
                let &LocksChanged { seq, at_ms, more, .. } = all;
                serde_json::to_string(&LocksChanged { seq, at_ms, changed, removed, more }).ok()
            }
        }
    }
}

/// One client, counted for as long as it is connected.
struct Client {
    app: App,
    wanted: Wanted,
    receiver: broadcast::Receiver<Arc<Message>>,
    queued: VecDeque<Bytes>,
    is_over: bool,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.app.events.clients.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The bytes that a client gets. `after` is the id of the last message that it has.
pub(crate) fn stream(
    app: App,
    wanted: Wanted,
    after: Option<&str>,
) -> Result<impl Stream<Item = Result<Bytes, Infallible>> + Send + use<>> {
    let clients = app.events.clients.fetch_add(1, Ordering::Relaxed);
    let after = after.and_then(|id| {
        let (service, number) = id.split_once('-')?;
        (service.parse() == Ok(app.started_at_ms)).then(|| number.parse().ok())?
    });
    let (last, missed, receiver) = app.events.subscribe(after);
    let mut client = Client { app, wanted, receiver, queued: VecDeque::new(), is_over: false };
    if clients >= client.app.events.most {
        return Err(Problem::overloaded("too many clients receive events"));
    }
    match missed {
        Some(missed) => missed.iter().for_each(|message| client.queue(message)),
        None => client.snapshot(last),
    }
    Ok(stream::unfold(client, |mut client| async move {
        let next = client.next().await?;
        Some((Ok(next), client))
    }))
}

impl Client {
    fn queue(&mut self, message: &Message) {
        if let Some(text) = self.wanted.text(message) {
            let id = format!("{}-{}", self.app.started_at_ms, message.id);
            let (event, topic) = (message.event, message.topic);
            self.is_over |= topic == Topic::Service && event == "draining";
            self.queued.push_back(format!("id: {id}\nevent: {event}\ndata: {text}\n\n").into());
        }
    }

    fn snapshot(&mut self, last: u64) {
        let snapshot = self.app.snapshot(self.wanted.sees_all());
        if let Ok(text) = serde_json::to_string(&snapshot) {
            let id = format!("{}-{last}", self.app.started_at_ms);
            self.queued.push_back(format!("id: {id}\nevent: snapshot\ndata: {text}\n\n").into());
        }
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(bytes) = self.queued.pop_front() {
                return Some(bytes);
            }
            if self.is_over {
                return None;
            }
            match tokio::time::timeout(HEARTBEAT, self.receiver.recv()).await {
                Ok(Ok(message)) => self.queue(&message),
                Ok(Err(RecvError::Lagged(_))) => {
                    let last = self.app.events.kept().last;
                    self.receiver = self.receiver.resubscribe();
                    self.snapshot(last);
                }
                Ok(Err(RecvError::Closed)) => return None,
                Err(_) => {
                    let at_ms = self.app.wall_ms();
                    return Some(format!("event: heartbeat\ndata: {{\"at_ms\":{at_ms}}}\n\n").into());
                }
            }
        }
    }
}
