//! One stream that watches the keys that somebody waits for, or holds.
//!
//! An event proves nothing: who waits claims again, and who holds renews. A stream that breaks forgets everything: those
//! who wait are woken, and leases are renewed, which enters what is to be watched into the next one.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use leasehold_core::{
    engine::{LinkChange, LossHint, Wake, WakeSink},
    name::Name,
    owner::OwnerId,
};
use tokio::sync::mpsc;

use super::{
    channel::Members,
    proto::{WatchCancelRequest, WatchCreateRequest, WatchOp, WatchRequest, WatchResponse},
    stream_of,
};

const PATH: &str = "/etcdserverpb.Watch/Watch";

/// Most of a client's attempts and leases that watch one key.
const WATCHERS_MAX: usize = 10_000;

/// Who is told of events.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Watcher {
    /// An attempt that waits.
    Attempt(OwnerId),
    /// An attempt that waits for a record, and is told once: nobody says when it gives up.
    Record(OwnerId),
    /// A lease under this name, and is told once.
    Holder(OwnerId, Name),
}

/// The first key and the end of the range; the end is empty for one key.
type Target = (Vec<u8>, Vec<u8>);

/// What a client watches.
pub(crate) struct Watches {
    members: Arc<Members>,
    sink: OnceLock<Weak<dyn WakeSink>>,
    stream: Mutex<Stream>,
    /// Numbers of watches, never used twice.
    next: AtomicU64,
}

#[derive(Default)]
struct Stream {
    requests: Option<mpsc::UnboundedSender<WatchRequest>>,
    /// The link over which loss is reported.
    link: u64,
    watched: HashMap<i64, Watched>,
    by_target: HashMap<Target, i64>,
    by_watcher: HashMap<Watcher, Vec<i64>>,
}

struct Watched {
    target: Target,
    watchers: Vec<Watcher>,
    /// Up to which revision its events were reported.
    reported: i64,
}

impl Watches {
    pub(crate) fn new(members: Arc<Members>) -> Arc<Self> {
        let (sink, stream) = (OnceLock::new(), Mutex::default());
        Arc::new(Self { members, sink, stream, next: AtomicU64::new(1) })
    }

    pub(crate) fn set_sink(&self, sink: Weak<dyn WakeSink>) {
        let _first = self.sink.set(sink);
    }

    fn sink(&self) -> Option<Arc<dyn WakeSink>> {
        self.sink.get().and_then(Weak::upgrade)
    }

    fn stream(&self) -> MutexGuard<'_, Stream> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells one of every event from this revision on, of these targets and no others. Returns the link.
    pub(crate) fn watch(self: &Arc<Self>, watcher: &Watcher, targets: Vec<Target>, from: i64) -> u64 {
        let mut stream = self.stream();
        let mut is_late = false;
        let before = stream.by_watcher.remove(watcher).unwrap_or_default();
        let (mut kept, mut requests) = (Vec::with_capacity(targets.len()), Vec::new());
        for target in targets {
            let id = match stream.by_target.get(&target) {
                Some(id) => *id,
                None => {
                    let id = self.next.fetch_add(1, Ordering::Relaxed).cast_signed();
                    let (key, range_end) = target.clone();
                    let create = WatchCreateRequest { key, range_end, start_revision: from, watch_id: id };
                    requests.push(WatchRequest { op: Some(WatchOp::Create(create)) });
                    stream.by_target.insert(target.clone(), id);
                    stream.watched.insert(id, Watched { target, watchers: Vec::new(), reported: 0 });
                    id
                }
            };
            let watched = stream.watched.get_mut(&id).expect("known by its target");
            // Others were told of it before this one came.
            is_late |= watched.reported >= from;
            if !watched.watchers.contains(watcher) {
                watched.watchers.push(watcher.clone());
                if watched.watchers.len() > WATCHERS_MAX {
                    // Hints may be lost: whoever waits asks from time to time.
                    watched.watchers.swap_remove(0);
                }
            }
            kept.push(id);
        }
        for id in before.iter().filter(|id| !kept.contains(id)) {
            requests.extend(stream.leave(*id, watcher));
        }
        if !kept.is_empty() {
            stream.by_watcher.insert(watcher.clone(), kept);
        }
        for request in requests {
            self.send(&mut stream, request);
        }
        let link = stream.link;
        drop(stream);
        if is_late {
            self.tell([watcher.clone()]);
        }
        link
    }

    /// Whether one is told of anything.
    pub(crate) fn is_watching(&self, watcher: &Watcher) -> bool {
        self.stream().by_watcher.contains_key(watcher)
    }

    /// Tells one of nothing any more.
    pub(crate) fn forget(self: &Arc<Self>, watcher: &Watcher) {
        let mut stream = self.stream();
        let Some(before) = stream.by_watcher.remove(watcher) else { return };
        for id in before {
            if let Some(request) = stream.leave(id, watcher)
                && let Some(requests) = &stream.requests
            {
                // A stream that ended has forgotten it.
                let _sent = requests.send(request);
            }
        }
    }

    fn send(self: &Arc<Self>, stream: &mut Stream, request: WatchRequest) {
        let is_open = stream.requests.as_ref().is_some_and(|requests| requests.send(request.clone()).is_ok());
        if !is_open {
            let (requests, queued) = mpsc::unbounded_channel();
            let _sent = requests.send(request);
            stream.requests = Some(requests);
            stream.link += 1;
            tokio::spawn(read(Arc::downgrade(self), self.members.clone(), stream.link, queued));
        }
    }

    fn changed(self: &Arc<Self>, link: u64, response: &WatchResponse) {
        let mut stream = self.stream();
        if stream.link != link {
            return;
        }
        let id = response.watch_id;
        let is_over = response.canceled;
        let watchers = match stream.watched.get_mut(&id) {
            // What a compaction has removed may have been an event.
            Some(watched) if is_over || !response.events.is_empty() => {
                let revision = response.header.as_ref().map_or(i64::MAX, |header| header.revision);
                watched.reported = watched.reported.max(revision);
                watched.watchers.clone()
            }
            _ => return,
        };
        if is_over {
            stream.drop_watch(id);
        }
        drop(stream);
        self.tell(watchers);
    }

    fn tell(self: &Arc<Self>, watchers: impl IntoIterator<Item = Watcher> + Clone) {
        // Whoever asks or renews because of it is told of the next event again, and nobody else is remembered.
        for watcher in watchers.clone() {
            if !matches!(watcher, Watcher::Attempt(_)) {
                self.forget(&watcher);
            }
        }
        let Some(sink) = self.sink() else { return };
        for watcher in watchers {
            match watcher {
                Watcher::Attempt(owner) | Watcher::Record(owner) => sink.wake(Wake::LookAgain { owner }),
                Watcher::Holder(_, name) => sink.may_be_lost(LossHint::Changed { name }),
            }
        }
    }

    fn ended(&self, link: u64, why: String) {
        let mut stream = self.stream();
        if stream.link != link {
            return;
        }
        *stream = Stream { link, ..Stream::default() };
        drop(stream);
        if let Some(sink) = self.sink() {
            sink.link(LinkChange::Disconnected { why });
            sink.may_be_lost(LossHint::Unwatched { link });
            sink.wake(Wake::LookAgainAll);
        }
    }

    /// Ends the stream.
    pub(crate) fn close(&self) {
        let mut stream = self.stream();
        *stream = Stream { link: stream.link + 1, ..Stream::default() };
    }
}

impl Stream {
    /// One does not watch this any more; a watch without watchers ends.
    fn leave(&mut self, id: i64, watcher: &Watcher) -> Option<WatchRequest> {
        let watched = self.watched.get_mut(&id)?;
        watched.watchers.retain(|other| other != watcher);
        if !watched.watchers.is_empty() {
            return None;
        }
        self.drop_watch(id);
        Some(WatchRequest { op: Some(WatchOp::Cancel(WatchCancelRequest { watch_id: id })) })
    }

    fn drop_watch(&mut self, id: i64) {
        if let Some(watched) = self.watched.remove(&id) {
            self.by_target.remove(&watched.target);
            for watcher in watched.watchers {
                if let Some(ids) = self.by_watcher.get_mut(&watcher) {
                    ids.retain(|other| *other != id);
                }
            }
        }
    }
}

/// Reads the events of one stream until it ends.
async fn read(
    of: Weak<Watches>,
    members: Arc<Members>,
    link: u64,
    queued: mpsc::UnboundedReceiver<WatchRequest>,
) {
    let place = members.place();
    let why = match members.stream::<_, WatchResponse>(place, PATH, stream_of(queued)).await {
        Err(error) => error.to_string(),
        Ok(mut events) => loop {
            match events.message().await {
                Ok(Some(response)) => match of.upgrade() {
                    Some(of) => of.changed(link, &response),
                    None => return,
                },
                Ok(None) => break "the member ended the stream of events".into(),
                Err(status) => break members.stream_failed(place, &status).to_string(),
            }
        },
    };
    if let Some(of) = of.upgrade() {
        of.ended(link, why);
    }
}
