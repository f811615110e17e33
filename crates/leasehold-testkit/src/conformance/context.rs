//! The context of a test case: clients of its own namespace, and helpers to wait and to inspect.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use leasehold::{
    Builder, Clock, Guard, Leasehold, Lock,
    engine::{Capabilities, Engine, Inspection},
};
use tokio::task::JoinHandle;

use super::{Fixture, Namespace};

/// Longest wait for something that must come, far below a case's own limit.
const PATIENCE: Duration = Duration::from_secs(15);

/// The context of one test case. Clones share it.
#[derive(Clone)]
pub struct TestContext {
    fixture: Arc<dyn Fixture>,
    namespace: Arc<Namespace>,
    capabilities: Arc<Capabilities>,
    clients: Arc<Mutex<Vec<Leasehold>>>,
}

impl TestContext {
    pub(super) fn new(
        fixture: Arc<dyn Fixture>,
        namespace: Namespace,
        capabilities: Arc<Capabilities>,
    ) -> Self {
        Self { fixture, namespace: Arc::new(namespace), capabilities, clients: Arc::default() }
    }

    /// What the engine under test can do.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// How much longer to wait until something shows in a store that counts in whole seconds.
    pub(in crate::conformance) fn step(&self) -> Duration {
        Some(self.capabilities.ttl_step).filter(|step| *step > ms(1)).unwrap_or_default()
    }

    /// The name of this case's namespace, for keys without a prefix: records and pools.
    pub fn namespace(&self) -> &str {
        &self.namespace.name
    }

    /// A new client of this case's namespace.
    pub async fn client(&self) -> Leasehold {
        self.client_with(|builder| builder).await
    }

    /// The same with settings.
    pub async fn client_with(&self, change: impl FnOnce(Builder) -> Builder) -> Leasehold {
        let client = change(self.builder()).connect().await.expect("the store can be reached");
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).push(client.clone());
        client
    }

    /// A builder, for cases about connecting.
    pub fn builder(&self) -> Builder {
        self.fixture.builder(&self.namespace)
    }

    /// A builder whose client and engine follow another clock.
    pub fn builder_on(&self, clock: Clock) -> Builder {
        self.fixture.builder(&self.namespace.with_clock(clock))
    }

    /// The engine contract without a client; needs `Contract`.
    pub fn engine(&self) -> Arc<dyn Engine> {
        self.fixture.engine(&self.namespace)
    }

    /// Every lock that is held or has waiters in this namespace, as listed by a new client and by the store itself.
    pub async fn leftovers(&self) -> Vec<String> {
        let observer = self.client().await;
        let mut found: Vec<_> = list_all(&observer, "", 100).await.iter().map(describe).collect();
        let namespace = self.namespace.name.clone();
        found.extend(self.with_fixture(move |fixture| fixture.leftovers(&namespace)).await);
        found
    }

    /// Asserts that no lock in this namespace is held or has waiters.
    pub async fn assert_empty(&self) {
        let left = self.leftovers().await;
        assert!(left.is_empty(), "left behind: {left:?}");
    }

    /// Deletes queues and fences; needs `SideState`.
    pub async fn delete_side_state(&self) {
        let namespace = self.namespace.name.clone();
        self.with_fixture(move |fixture| fixture.delete_side_state(&namespace)).await;
    }

    /// Deletes everything; needs `Wipe`.
    pub async fn wipe(&self) {
        self.with_fixture(|fixture| fixture.wipe()).await;
    }

    /// Saves the state; needs `Rewind`.
    pub async fn save(&self) {
        self.with_fixture(|fixture| fixture.save()).await;
    }

    /// Restores the saved state; needs `Rewind`.
    pub async fn rewind(&self) {
        self.with_fixture(|fixture| fixture.rewind()).await;
    }

    /// Makes the store unreachable; needs `Outage`.
    pub async fn cut(&self) {
        let namespace = self.namespace.name.clone();
        self.with_fixture(move |fixture| fixture.cut(&namespace)).await;
    }

    /// Makes it reachable again; needs `Outage`.
    pub async fn mend(&self) {
        let namespace = self.namespace.name.clone();
        self.with_fixture(move |fixture| fixture.mend(&namespace)).await;
    }

    async fn with_fixture<T: Send + 'static>(
        &self,
        call: impl FnOnce(&dyn Fixture) -> T + Send + 'static,
    ) -> T {
        let fixture = self.fixture.clone();
        let done = tokio::task::spawn_blocking(move || call(&*fixture)).await;
        done.unwrap_or_else(|error| resume_unwind(error.into_panic()))
    }

    /// Runs a future on its own thread and runtime, where it may block, end the runtime, or pause time.
    pub(super) async fn on_own_thread<T, F>(
        &self,
        paused: bool,
        body: impl FnOnce(TestContext) -> F + Send + 'static,
    ) -> T
    where
        T: Send + 'static,
        F: Future<Output = T>,
    {
        // Its clients end with its runtime, so this context does not close them.
        let test = Self { clients: Arc::default(), ..self.clone() };
        let (done, outcome) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let run = AssertUnwindSafe(|| {
                let mut builder = tokio::runtime::Builder::new_current_thread();
                let runtime = builder.enable_all().start_paused(paused).build().expect("a runtime");
                runtime.block_on(body(test))
            });
            let _nobody_waits_any_more = done.send(catch_unwind(run));
        });
        outcome.await.expect("the thread answers").unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Closes the clients that the case made.
    pub(super) async fn close_clients(&self) {
        let clients = std::mem::take(&mut *self.clients.lock().unwrap_or_else(PoisonError::into_inner));
        futures_util::future::join_all(clients.iter().map(|client| client.close())).await;
    }

    /// Gives the namespace back; its clients have ended. May block.
    pub(super) fn end(&self) {
        self.fixture.ended(&self.namespace.name);
    }
}

/// Waits until `condition` holds.
///
/// # Panics
/// When that takes too long; the message says `what` was awaited.
pub async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let began = tokio::time::Instant::now();
    while !condition().await {
        assert!(began.elapsed() < PATIENCE, "timed out waiting: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Waits for a future that must end.
pub(super) async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(output) => output,
        Err(_) => panic!("timed out waiting: {what}"),
    }
}

/// Sleeps, to assert afterwards that something did *not* happen.
pub(super) async fn sleep(time: Duration) {
    tokio::time::sleep(time).await;
}

/// A wait in which a store on a busy machine says that the lock is held. One that did not answer at all is unreachable.
pub(super) const ANSWERED: Duration = ms(1000);

pub(super) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Waits until `waiting` attempts are in the queue.
pub(super) async fn until_waiting(client: &Leasehold, name: &str, waiting: u32) {
    eventually(&format!("{waiting} wait for {name}"), async || {
        client.inspect(name).await.expect("inspected").waiting == waiting
    })
    .await;
}

/// Whether another client would be refused.
pub(super) async fn is_closed(client: &Leasehold, name: &str) -> bool {
    let holders = client.inspect(name).await.expect("inspected").holders;
    // On a quorum votes that are no longer a majority keep others out.
    holders.total > 0 || holders.free_in.is_some()
}

/// Starts to wait for a lock and returns once it is in the queue behind `ahead` others.
pub(super) async fn enqueue(client: &Leasehold, lock: Lock, name: &str, ahead: u32) -> JoinHandle<Guard> {
    let task = tokio::spawn(async move { lock.acquire().await.expect("acquired after waiting") });
    until_waiting(client, name, ahead + 1).await;
    task
}

/// All pages of a list.
pub(super) async fn list_all(client: &Leasehold, prefix: &str, page: u32) -> Vec<Inspection> {
    let (mut found, mut from) = (Vec::new(), None);
    loop {
        let page = client.list_page(prefix, from, page).await.expect("listed");
        found.extend(page.items);
        match page.next {
            Some(next) => from = Some(next),
            None => return found,
        }
    }
}

fn describe(found: &Inspection) -> String {
    let held = if found.held().is_some() { "held" } else { "free" };
    format!("{} ({held}, {} waiting)", found.name, found.waiting)
}

/// Polls a future at most `polls` times, then drops it; `None` if it did not end by itself.
pub(super) async fn poll_at_most<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = Box::pin(future);
    let mut polled = 0;
    std::future::poll_fn(|context| {
        if polled == polls {
            return std::task::Poll::Ready(None);
        }
        polled += 1;
        match future.as_mut().poll(context) {
            std::task::Poll::Ready(output) => std::task::Poll::Ready(Some(output)),
            std::task::Poll::Pending if polled == polls => std::task::Poll::Ready(None),
            std::task::Poll::Pending => std::task::Poll::Pending,
        }
    })
    .await
}
