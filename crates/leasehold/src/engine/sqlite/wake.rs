//! Hints between engines: "claim now, it may be your turn".
//!
//! Every engine has a random id, which its waiters carry in the file. An engine that frees a lock sends the id of the
//! waiting attempt to the engine with that id: directly if it is itself, otherwise, on Linux, as a datagram to an
//! abstract Unix address made of the id. An engine that settles a record does the same for all its waiters. A hint
//! proves nothing and may be lost (another network namespace, a full socket, another platform): waiters poll as well,
//! and a forged hint causes a poll.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock, Weak},
};

use crate::{
    engine::{Wake, WakeSink},
    owner::OwnerId,
};

use super::store::Hint;

/// The random part of an attempt, in hexadecimal digits.
const ID_BYTES: usize = 32;
/// Most attempts in one datagram: a socket holds few of them, and many may wait for one end.
#[cfg(any(target_os = "linux", target_os = "android"))]
const IDS_MAX: usize = 1000;

/// Where one engine's hints go, and its way to other engines.
pub(super) struct Wakes {
    id: String,
    sink: OnceLock<Weak<dyn WakeSink>>,
    datagrams: datagrams::Datagrams,
}

impl Wakes {
    /// An engine's wake-ups under a random id. Nothing is opened before somebody waits.
    pub(super) fn new(random: u128) -> Self {
        let id = format!("{random:032x}");
        Self { id, sink: OnceLock::new(), datagrams: datagrams::Datagrams::default() }
    }

    /// The id under which hints reach this engine.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Where wake-ups go.
    pub(super) fn set_sink(&self, sink: Weak<dyn WakeSink>) {
        let _first = self.sink.set(sink);
    }

    /// Somebody may have to wait from now on.
    pub(super) fn listen(self: &Arc<Self>) {
        self.datagrams.listen(self);
    }

    /// Delivers hints. Never blocks, never fails.
    pub(super) fn send(&self, hints: Vec<Hint>) {
        let mut to_others = BTreeMap::<String, String>::new();
        for hint in hints {
            if hint.wake == self.id {
                self.receive(&hint.owner_id);
            } else if hint.owner_id.len() == ID_BYTES {
                to_others.entry(hint.wake).or_default().push_str(&hint.owner_id);
            }
        }
        for (wake, owner_ids) in &to_others {
            self.datagrams.send(wake, owner_ids);
        }
    }

    /// Stops listening until somebody waits again.
    pub(super) fn close(&self) {
        self.datagrams.close();
    }

    fn receive(&self, owner_id: &str) {
        if let (Some(owner), Some(sink)) = (OwnerId::parse(owner_id), self.sink.get().and_then(Weak::upgrade))
        {
            sink.wake(Wake::LookAgain { owner });
        }
    }
}

/// Datagrams on abstract Unix addresses.
#[cfg(any(target_os = "linux", target_os = "android"))]
mod datagrams {
    #[cfg(target_os = "android")]
    use std::os::android::net::SocketAddrExt;
    #[cfg(target_os = "linux")]
    use std::os::linux::net::SocketAddrExt;
    use std::{
        io,
        os::unix::net::{SocketAddr, UnixDatagram},
        sync::{
            Arc, Mutex, PoisonError, Weak,
            atomic::{AtomicBool, Ordering},
        },
        thread,
    };

    use super::{ID_BYTES, IDS_MAX, Wakes};

    #[derive(Default)]
    pub(super) struct Datagrams {
        listener: Mutex<Option<Listener>>,
        outgoing: Mutex<Option<UnixDatagram>>,
    }

    /// A thread that receives; it ends when this is dropped.
    struct Listener {
        address: SocketAddr,
        stopped: Arc<AtomicBool>,
    }

    impl Datagrams {
        pub(super) fn listen(&self, wakes: &Arc<Wakes>) {
            let mut listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
            if listener.is_none() {
                match Listener::start(wakes.id(), Arc::downgrade(wakes)) {
                    Ok(started) => *listener = Some(started),
                    Err(error) => tracing::debug!(%error, "no wake-ups from other processes, polling only"),
                }
            }
        }

        pub(super) fn send(&self, wake: &str, owner_ids: &str) {
            let mut outgoing = self.outgoing.lock().unwrap_or_else(PoisonError::into_inner);
            if outgoing.is_none() {
                *outgoing = outgoing_socket().ok();
            }
            if let (Some(socket), Ok(address)) = (&*outgoing, address(wake)) {
                for owner_ids in owner_ids.as_bytes().chunks(ID_BYTES * IDS_MAX) {
                    if let Err(error) = socket.send_to_addr(owner_ids, &address) {
                        tracing::trace!(%error, "a wake-up was not delivered");
                    }
                }
            }
        }

        pub(super) fn close(&self) {
            *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = None;
            *self.outgoing.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    impl Listener {
        fn start(id: &str, wakes: Weak<Wakes>) -> io::Result<Self> {
            let address = address(id)?;
            let socket = UnixDatagram::bind_addr(&address)?;
            let stopped = Arc::new(AtomicBool::new(false));
            let stop = Arc::clone(&stopped);
            thread::Builder::new()
                .name("leasehold-wakes".into())
                .spawn(move || receive(&socket, &stop, &wakes))?;
            Ok(Self { address, stopped })
        }
    }

    impl Drop for Listener {
        fn drop(&mut self) {
            self.stopped.store(true, Ordering::Release);
            // Any datagram makes the thread check. If its socket is full, it is about to check anyway.
            let _poked = outgoing_socket().and_then(|socket| socket.send_to_addr(b"", &self.address));
        }
    }

    fn receive(socket: &UnixDatagram, stopped: &AtomicBool, wakes: &Weak<Wakes>) {
        let mut buffer = vec![0; ID_BYTES * IDS_MAX];
        while let Ok(length) = socket.recv(&mut buffer) {
            if stopped.load(Ordering::Acquire) {
                return;
            }
            let Some(wakes) = wakes.upgrade() else { return };
            for owner_id in buffer[..length].chunks(ID_BYTES) {
                if let Ok(owner_id) = std::str::from_utf8(owner_id) {
                    wakes.receive(owner_id);
                }
            }
        }
    }

    fn outgoing_socket() -> io::Result<UnixDatagram> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    }

    fn address(id: &str) -> io::Result<SocketAddr> {
        SocketAddr::from_abstract_name(format!("leasehold-{id}"))
    }
}

/// No way to other processes: their waiters poll.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod datagrams {
    use std::sync::Arc;

    use super::Wakes;

    #[derive(Default)]
    pub(super) struct Datagrams;

    impl Datagrams {
        pub(super) fn listen(&self, _: &Arc<Wakes>) {}
        pub(super) fn send(&self, _: &str, _: &str) {}
        pub(super) fn close(&self) {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::{
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

    fn hint(to: &Wakes, owner: &Owner) -> Vec<Hint> {
        vec![Hint { wake: to.id().into(), owner_id: owner.id_text().into() }]
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
        settling.send(owners.iter().flat_map(|owner| hint(&waiting, owner)).collect());
        for owner in owners {
            assert_eq!(told.recv_timeout(std::time::Duration::from_secs(30)).unwrap(), owner.id());
        }
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
