//! A TCP proxy that misbehaves on command.

use std::collections::HashSet;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};

use crate::poll::eventually;

const CHUNK_BYTES: usize = 16 * 1024;
/// Chunks buffered per direction; beyond that the sender gets back-pressure, as on a real network.
const CHUNKS_KEPT_MAX: usize = 4096;
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
const CUT_WITHIN: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Pass,
    Hold,
    Swallow,
}

#[derive(Debug, Clone, Copy)]
struct Switches {
    /// Where new connections lead.
    upstream: SocketAddr,
    requests: Flow,
    replies: Flow,
    delay: Duration,
    refuse: bool,
    /// Connections of an earlier generation are cut.
    generation: u64,
}

impl Switches {
    fn passing(upstream: SocketAddr, generation: u64) -> Self {
        let (requests, replies) = (Flow::Pass, Flow::Pass);
        Self { upstream, requests, replies, delay: Duration::ZERO, refuse: false, generation }
    }
}

#[derive(Debug, Default)]
struct Traffic {
    connections: AtomicU64,
    requests_bytes: AtomicU64,
    replies_bytes: AtomicU64,
    open: Mutex<HashSet<u64>>,
}

impl Traffic {
    fn open(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A network path with switches, in front of one server.
///
/// It runs on its own thread, so a test whose runtime is paused or blocked does not slow it. Every switch may be changed at
/// any time and applies to open connections too, unless documented otherwise.
///
/// ```no_run
/// # use leasehold_testkit::{FaultProxy, RedisServer};
/// # let server = RedisServer::start()?;
/// let proxy = FaultProxy::start(server.addr());
/// proxy.drop_replies(); // the server executes, the client gets no reply
/// proxy.pass();
/// # Ok::<(), leasehold_testkit::ServerError>(())
/// ```
#[derive(Debug)]
pub struct FaultProxy {
    addr: SocketAddr,
    switches: watch::Sender<Switches>,
    traffic: Arc<Traffic>,
    end: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl FaultProxy {
    /// Listens on a free loopback port and passes everything on to `upstream`, which need not be up yet.
    ///
    /// # Panics
    /// When no port or thread is available.
    pub fn start(upstream: SocketAddr) -> Self {
        let listener = StdListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("cannot bind a loopback port");
        listener.set_nonblocking(true).expect("cannot make the listener non-blocking");
        let addr = listener.local_addr().expect("a bound listener has an address");
        let (switches, view) = watch::channel(Switches::passing(upstream, 0));
        let traffic = Arc::<Traffic>::default();
        let (end, ended) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("cannot build the proxy's runtime");
        let counted = Arc::clone(&traffic);
        let thread = thread::Builder::new()
            .name("fault-proxy".into())
            .spawn(move || {
                runtime.block_on(async {
                    let listener = TcpListener::from_std(listener).expect("cannot register the listener");
                    tokio::select! {
                        () = accept(listener, view, counted) => {}
                        _ = ended => {}
                    }
                });
            })
            .expect("cannot start the proxy's thread");
        Self { addr, switches, traffic, end: Some(end), thread: Some(thread) }
    }

    /// Where clients connect.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `redis://` with [`addr`](Self::addr), without credentials.
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }

    /// Ends every fault; what was held is delivered, in order.
    pub fn pass(&self) {
        self.switches
            .send_modify(|switches| *switches = Switches::passing(switches.upstream, switches.generation));
    }

    /// Delivers every byte this much later, in each direction: a round trip takes twice as long.
    pub fn delay(&self, delay: Duration) {
        self.switches.send_modify(|switches| switches.delay = delay);
    }

    /// A black hole: connections open and stay open, nothing arrives. The bytes are kept for [`pass`](Self::pass).
    pub fn hold(&self) {
        self.switches
            .send_modify(|switches| (switches.requests, switches.replies) = (Flow::Hold, Flow::Hold));
    }

    /// Requests arrive, replies are lost for good.
    pub fn drop_replies(&self) {
        self.switches.send_modify(|switches| switches.replies = Flow::Swallow);
    }

    /// Requests arrive, replies are held until [`release_replies`](Self::release_replies).
    pub fn hold_replies(&self) {
        self.switches.send_modify(|switches| switches.replies = Flow::Hold);
    }

    /// Delivers the held replies, in order, and later ones.
    pub fn release_replies(&self) {
        self.switches.send_modify(|switches| switches.replies = Flow::Pass);
    }

    /// Resets every open connection, on both sides; returns when that is done. New ones pass.
    #[track_caller]
    pub fn cut(&self) {
        let cut = self.traffic.open().clone();
        self.switches.send_modify(|switches| switches.generation += 1);
        eventually(CUT_WITHIN, "the proxy to cut its connections", || self.traffic.open().is_disjoint(&cut));
    }

    /// Resets every new connection at once; open ones stay open.
    pub fn refuse(&self) {
        self.switches.send_modify(|switches| switches.refuse = true);
    }

    /// Directs new connections to another server, as a virtual address or a DNS name does after a fail-over; open ones
    /// stay.
    pub fn lead_to(&self, upstream: SocketAddr) {
        self.switches.send_modify(|switches| switches.upstream = upstream);
    }

    /// Connections accepted so far, refused ones included.
    pub fn connections(&self) -> u64 {
        self.traffic.connections.load(Ordering::SeqCst)
    }

    /// Bytes received from clients, delivered or not.
    pub fn requests_bytes(&self) -> u64 {
        self.traffic.requests_bytes.load(Ordering::SeqCst)
    }

    /// Bytes received from the server, delivered or not: once it grows, the server has executed.
    pub fn replies_bytes(&self) -> u64 {
        self.traffic.replies_bytes.load(Ordering::SeqCst)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // A panic there was printed when it happened; a second one while unwinding would abort.
            let _ = thread.join();
        }
    }
}

async fn accept(listener: TcpListener, switches: watch::Receiver<Switches>, traffic: Arc<Traffic>) {
    loop {
        // Out of file descriptors, or a client that is already gone: accept the next one.
        let Ok((client, _)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let id = traffic.connections.fetch_add(1, Ordering::SeqCst);
        let now = *switches.borrow();
        if now.refuse {
            reset(client);
            continue;
        }
        traffic.open().insert(id);
        let (mut switches, traffic) = (switches.clone(), Arc::clone(&traffic));
        tokio::spawn(async move {
            carry(client, now.upstream, now.generation, &mut switches, &traffic).await;
            traffic.open().remove(&id);
        });
    }
}

/// One connection, from accept to close.
async fn carry(
    mut client: TcpStream,
    upstream: SocketAddr,
    generation: u64,
    switches: &mut watch::Receiver<Switches>,
    traffic: &Traffic,
) {
    let mut cutter = switches.clone();
    let mut cut = std::pin::pin!(cutter.wait_for(|now| now.generation != generation));
    let connected = tokio::select! {
        _ = &mut cut => None,
        connected = connect(upstream, switches.clone()) => connected.ok(),
    };
    let Some(mut server) = connected else { return reset(client) };
    let _ = client.set_nodelay(true);

    let carried = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let requests =
            pump(from_client, to_server, &traffic.requests_bytes, switches.clone(), |now| now.requests);
        let replies =
            pump(from_server, to_client, &traffic.replies_bytes, switches.clone(), |now| now.replies);
        tokio::select! {
            _ = &mut cut => Err(io::ErrorKind::ConnectionReset.into()),
            carried = async { tokio::try_join!(requests, replies) } => carried,
        }
    };
    if carried.is_err() {
        reset(client);
        reset(server);
    }
}

async fn connect(upstream: SocketAddr, mut switches: watch::Receiver<Switches>) -> io::Result<TcpStream> {
    // In a black hole a client cannot learn that the server is down.
    unless_held(&mut switches, |now| now.requests).await?;
    let server = TcpStream::connect(upstream).await?;
    server.set_nodelay(true)?;
    Ok(server)
}

/// One direction. Reading never waits for the switches, so that counters show what has arrived.
async fn pump(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    bytes: &AtomicU64,
    mut switches: watch::Receiver<Switches>,
    flow: fn(&Switches) -> Flow,
) -> io::Result<()> {
    let (kept, mut due) = mpsc::channel::<(Instant, Vec<u8>)>(CHUNKS_KEPT_MAX);
    let read = async move {
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            let length = from.read(&mut buffer).await?;
            let chunk = (Instant::now(), buffer[..length].to_vec());
            bytes.fetch_add(length as u64, Ordering::SeqCst);
            // An empty chunk is the end of the stream; it is delayed and held like data.
            if kept.send(chunk).await.is_err() || length == 0 {
                return io::Result::Ok(());
            }
        }
    };
    let write = async move {
        while let Some((arrived, chunk)) = due.recv().await {
            let delay = switches.borrow().delay;
            sleep_until(arrived + delay).await;
            let swallow = unless_held(&mut switches, flow).await? == Flow::Swallow;
            if chunk.is_empty() {
                to.shutdown().await?;
            } else if !swallow {
                to.write_all(&chunk).await?;
            }
        }
        io::Result::Ok(())
    };
    tokio::try_join!(read, write).map(drop)
}

async fn unless_held(
    switches: &mut watch::Receiver<Switches>,
    flow: fn(&Switches) -> Flow,
) -> io::Result<Flow> {
    let now = switches.wait_for(|now| flow(now) != Flow::Hold).await;
    // The sender is gone when the proxy is being dropped.
    now.map(|now| flow(&now)).map_err(|_| io::ErrorKind::ConnectionAborted.into())
}

/// Closes with RST instead of FIN.
fn reset(stream: TcpStream) {
    // Fails only for a socket that is already reset.
    let _ = stream.set_zero_linger();
}
