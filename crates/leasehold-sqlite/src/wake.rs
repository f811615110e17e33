//! Hints between engines: "claim now, it may be your turn".
//!
//! Every engine has a random id, which its waiters carry in the file. An engine that frees a lock, or settles a record,
//! sends the ids of the waiting attempts to their engine: directly if it is itself, otherwise, on Linux, as a datagram to
//! an abstract Unix address made of the engine's id. A hint proves nothing and may be lost (another network namespace, a
//! full socket, another platform): waiters poll as well, and a forged hint causes a poll.

use std::net::Shutdown;
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::{io, thread};

use leasehold_core::engine::{Wake, WakeSink};
use leasehold_core::owner::OwnerId;

use super::{kernel::address, store::Hints};

/// The random part of an attempt, in hexadecimal digits.
pub(super) const ID_BYTES: usize = 32;
/// Longest datagram, a thousand attempts: a socket holds few datagrams, and many may wait for one end.
const DATAGRAM_BYTES: usize = 1000 * ID_BYTES;

/// Where one engine's hints go, and its way to other engines.
pub(super) struct Wakes {
    /// Under which hints reach this engine.
    pub(super) id: String,
    sink: OnceLock<Weak<dyn WakeSink>>,
    listener: Mutex<Option<Listener>>,
}

impl Wakes {
    /// An engine's wake-ups under a random id. Nothing is opened before somebody waits.
    pub(super) fn new(random: u128) -> Self {
        Self { id: format!("{random:032x}"), sink: OnceLock::new(), listener: Mutex::default() }
    }

    /// Where wake-ups go.
    pub(super) fn set_sink(&self, sink: Weak<dyn WakeSink>) {
        let _first = self.sink.set(sink);
    }

    /// Somebody may have to wait from now on.
    pub(super) fn listen(&self) {
        let (mut listener, Some(sink)) = (self.listener(), self.sink.get()) else { return };
        if listener.is_none() {
            match Listener::start(&self.id, sink.clone()) {
                Ok(started) => *listener = Some(started),
                Err(error) => tracing::debug!(%error, "no wake-ups from other processes, polling only"),
            }
        }
    }

    /// Delivers hints. Never blocks, never fails.
    pub(super) fn send(&self, hints: Hints) {
        for (engine, owner_ids) in hints {
            if engine == self.id {
                if let Some(sink) = self.sink.get().and_then(Weak::upgrade) {
                    wake(&*sink, owner_ids.as_bytes());
                }
            } else if let Err(error) = send_to(&engine, owner_ids.as_bytes()) {
                tracing::trace!(%error, "a wake-up was not delivered");
            }
        }
    }

    /// Stops listening until somebody waits again.
    pub(super) fn close(&self) {
        *self.listener() = None;
    }

    fn listener(&self) -> MutexGuard<'_, Option<Listener>> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wake(sink: &dyn WakeSink, owner_ids: &[u8]) {
    let texts = owner_ids.chunks(ID_BYTES).filter_map(|id| std::str::from_utf8(id).ok());
    for owner in texts.filter_map(OwnerId::parse) {
        sink.wake(Wake::LookAgain { owner });
    }
}

/// The socket of a thread that receives datagrams; it ends when this is dropped.
struct Listener(Arc<UnixDatagram>);

impl Listener {
    fn start(id: &str, sink: Weak<dyn WakeSink>) -> io::Result<Self> {
        let listener = Self(Arc::new(UnixDatagram::bind_addr(&address(id)?)?));
        let socket = listener.0.clone();
        thread::Builder::new().name("leasehold-wakes".into()).spawn(move || {
            let mut buffer = vec![0; DATAGRAM_BYTES];
            while let Ok(length) = socket.recv(&mut buffer)
                && Arc::strong_count(&socket) > 1
                && let Some(sink) = sink.upgrade()
            {
                wake(&*sink, &buffer[..length]);
            }
        })?;
        Ok(listener)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // From now on the thread receives nothing, at once.
        let _ended = self.0.shutdown(Shutdown::Both);
    }
}

fn send_to(engine: &str, owner_ids: &[u8]) -> io::Result<()> {
    let (socket, address) = (UnixDatagram::unbound()?, address(engine)?);
    socket.set_nonblocking(true)?;
    owner_ids.chunks(DATAGRAM_BYTES).try_for_each(|ids| socket.send_to_addr(ids, &address).map(drop))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use leasehold_core::{
        engine::LinkChange,
        owner::{Holder, Owner},
    };

    struct Recorder(mpsc::Sender<OwnerId>);

    impl WakeSink for Recorder {
        fn wake(&self, wake: Wake) {
            if let Wake::LookAgain { owner } = wake {
                let _ = self.0.send(owner);
            }
        }
        fn link(&self, _: LinkChange) {}
    }

    fn engine() -> (Arc<Wakes>, Arc<dyn WakeSink>, mpsc::Receiver<OwnerId>) {
        let wakes = Arc::new(Wakes::new(rand::random()));
        let (tell, told) = mpsc::channel();
        let sink: Arc<dyn WakeSink> = Arc::new(Recorder(tell));
        wakes.set_sink(Arc::downgrade(&sink));
        (wakes, sink, told)
    }

    fn owner() -> Owner {
        Owner::new(rand::random(), &Holder::Foreign)
    }

    fn hint(to: &Wakes, owner: &Owner) -> Hints {
        [(to.id.clone(), owner.id_text().to_owned())].into()
    }

    #[test]
    fn a_hint_reaches_its_own_engine_without_a_socket() {
        let (wakes, _sink, told) = engine();
        let owner = owner();
        wakes.send(hint(&wakes, &owner));
        assert_eq!(told.try_recv().unwrap(), owner.id());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_hint_reaches_another_engine() {
        let (waiting, _sink, told) = engine();
        let (releasing, _, _) = engine();
        let owner = owner();
        waiting.listen();
        releasing.send(hint(&waiting, &owner));
        assert_eq!(told.recv_timeout(std::time::Duration::from_secs(10)).unwrap(), owner.id());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn many_hints_reach_another_engine_together() {
        let (waiting, _sink, told) = engine();
        let (settling, _, _) = engine();
        waiting.listen();
        let owners: Vec<_> = (0..2500).map(|_| owner()).collect();
        settling.send([(waiting.id.clone(), owners.iter().map(Owner::id_text).collect())].into());
        for owner in owners {
            assert_eq!(told.recv_timeout(std::time::Duration::from_secs(30)).unwrap(), owner.id());
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_closed_engine_stops_listening_and_listens_again_when_somebody_waits() {
        let (waiting, _sink, told) = engine();
        waiting.listen();
        waiting.close();
        let free = || UnixDatagram::bind_addr(&address(&waiting.id).unwrap()).is_ok();
        leasehold_testkit::eventually(std::time::Duration::from_secs(10), "its address is free", free);
        waiting.listen();
        let owner = owner();
        engine().0.send(hint(&waiting, &owner));
        assert_eq!(told.recv_timeout(std::time::Duration::from_secs(10)).unwrap(), owner.id());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn listening_ends_with_the_engine_and_a_lost_hint_is_nobodys_trouble() {
        let (waiting, sink, told) = engine();
        waiting.listen();
        let late = hint(&waiting, &owner());
        drop((waiting, sink));
        assert!(told.recv_timeout(std::time::Duration::from_secs(10)).is_err());
        engine().0.send(late);
    }
}
