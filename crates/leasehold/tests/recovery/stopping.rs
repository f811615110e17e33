//! How a recovery ends: stopped, dropped, or its winner's lock lost.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_stop_lets_handlers_end_and_gives_back_what_was_not_begun() {
    let leases = client("").await;
    let pool = leases.deadlines("payments").buckets(1);
    fill(&pool, 4).await;
    let handler = async |_: Due| {
        tokio::time::sleep(3 * SECOND).await;
        Handled::Ok(())
    };
    let recovery = pool.recover(handler).parallelism(2).await.unwrap();
    tokio::time::sleep(SECOND).await;
    assert_eq!(pool.stats().await.unwrap(), PoolStats { pending: 4, tried: 4, ..PoolStats::default() });
    let began = Instant::now();
    assert!(recovery.stop().await);
    assert_eq!(began.elapsed().as_secs(), 2);
    let stats = pool.stats().await.unwrap();
    assert_eq!((stats.pending, stats.due), (2, 2), "others can have them at once");
}

#[tokio::test(start_paused = true)]
async fn a_stop_takes_no_attempt_from_what_was_not_begun() {
    let leases = client("").await;
    let pool = leases.deadlines("payments").buckets(1);
    fill(&pool, 3).await;
    let seen = Seen::default();
    let recover = || {
        let noted = seen.clone();
        let handler = move |due: Due| {
            noted.add(&due);
            async {
                tokio::time::sleep(3 * SECOND).await;
                Handled::Ok(())
            }
        };
        pool.recover(handler).parallelism(1).attempts(1)
    };
    for _ in 0..2 {
        let recovery = recover().await.unwrap();
        tokio::time::sleep(SECOND).await;
        assert!(recovery.stop().await);
    }
    let recovery = recover().await.unwrap();
    until_empty(&pool).await;
    assert!(recovery.stop().await);
    assert_eq!((seen.counts(), pool.stats().await.unwrap().dead), (vec![1; 3], 0));
}

/// Deadlines cannot be settled while it is told so.
struct Unsettling(Arc<AtomicBool>);

impl Tamper for Unsettling {
    fn settle_deadlines<'a>(
        &'a self,
        inner: &'a dyn contract::Deadlines,
        pool: &'a contract::Pool,
        settlements: &'a [(contract::Receipt, contract::Settle)],
        until: Until,
    ) -> Fut<'a, Vec<bool>> {
        if self.0.load(Ordering::Relaxed) {
            return Box::pin(async { Err(EngineError::new(Fault::Unreachable, "no route")) });
        }
        inner.settle(pool, settlements, until)
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_takes_no_attempt_from_what_waits_for_its_turn() {
    let (away, clock) = (Arc::new(AtomicBool::new(false)), Clock::tokio());
    let builder = || Leasehold::builder("memory:").clock(clock.clone()).seed(1);
    let engine = Wrapped::new(builder().into_engine().unwrap(), Unsettling(away.clone()));
    let leases = builder().engine(Arc::new(engine)).connect().await.unwrap();
    let pool = leases.deadlines("payments").buckets(1);
    fill(&pool, 2).await;
    let seen = Seen::default();
    let noted = seen.clone();
    let handler = move |due: Due| {
        noted.add(&due);
        async {
            tokio::time::sleep(10 * SECOND).await;
            Handled::Ok(())
        }
    };
    let recovery = pool.recover(handler).parallelism(1).attempts(1);
    let recovery = recovery.visibility(20 * SECOND).handler_timeout(15 * SECOND).every(SECOND).await.unwrap();
    tokio::time::sleep(9 * SECOND).await;
    // The other one would have to be hidden again now.
    away.store(true, Ordering::Relaxed);
    tokio::time::sleep(2 * SECOND).await;
    away.store(false, Ordering::Relaxed);
    until_empty(&pool).await;
    assert!(recovery.stop().await);
    assert_eq!((seen.counts(), pool.stats().await.unwrap().dead), (vec![1; 2], 0));
}

/// Two clients that recover one pool as single winners, and how many handlers of both run at once.
struct Winners {
    clients: [Leasehold; 2],
    pool: Deadlines,
    /// Handlers that run now, the most at a time, and those that were dropped before their end.
    counts: Arc<[AtomicUsize; 3]>,
}

/// Counts itself out when it is dropped.
struct Running {
    counts: Arc<[AtomicUsize; 3]>,
    ended: bool,
}

impl Running {
    fn end(mut self) {
        self.ended = true;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.counts[0].fetch_sub(1, Ordering::Relaxed);
        self.counts[2].fetch_add(usize::from(!self.ended), Ordering::Relaxed);
    }
}

impl Winners {
    async fn join(store: &str) -> Self {
        let clock = Clock::tokio();
        let clients = [client_at(store, &clock).await, client_at(store, &clock).await];
        let pool = clients[0].deadlines("payments");
        fill(&pool, 2).await;
        Self { clients, pool, counts: Arc::default() }
    }

    fn recover(&self, client: usize, handler_takes: Duration) -> leasehold::deadlines::Recover {
        let counts = self.counts.clone();
        let handler = move |_: Due| {
            let running = Running { counts: counts.clone(), ended: false };
            counts[1].fetch_max(counts[0].fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            async move {
                tokio::time::sleep(handler_takes).await;
                running.end();
                Handled::Ok(())
            }
        };
        let recovery = self.clients[client].deadlines("payments").recover(handler);
        recovery.scans(Scans::SingleWinner).parallelism(1).every(SECOND).handler_timeout(50 * SECOND)
    }

    fn counted(&self) -> [usize; 3] {
        [0, 1, 2].map(|at| self.counts[at].load(Ordering::Relaxed))
    }
}

#[tokio::test(start_paused = true)]
async fn a_winner_that_is_stopped_keeps_its_lock_until_its_handlers_have_ended() {
    let winners = Winners::join("a winner that is stopped keeps its lock").await;
    let first = winners.recover(0, 20 * SECOND).await.unwrap();
    until("it handles", async || winners.counted()[0] == 1).await;
    let second = winners.recover(1, 20 * SECOND).await.unwrap();
    assert!(first.stop().await);
    assert_eq!(winners.counted(), [0, 1, 0]);
    until_empty(&winners.pool).await;
    assert_eq!(winners.counted(), [0, 1, 0]);
    assert!(second.stop().await);
}

#[tokio::test(start_paused = true)]
async fn a_winner_whose_grace_is_over_cuts_its_handlers_before_it_gives_up_its_lock() {
    let winners = Winners::join("a winner whose grace is over cuts its handlers").await;
    let first = winners.recover(0, 40 * SECOND).grace(5 * SECOND).await.unwrap();
    until("it handles", async || winners.counted()[0] == 1).await;
    let second = winners.recover(1, SECOND).await.unwrap();
    let began = Instant::now();
    assert!(!first.stop().await);
    assert_eq!(began.elapsed().as_secs(), 5);
    until_empty(&winners.pool).await;
    assert_eq!(winners.counted(), [0, 1, 1]);
    assert!(second.stop().await);
}

#[tokio::test(start_paused = true)]
async fn a_winner_that_lost_its_lock_cuts_its_handlers_and_begins_no_other() {
    let winners = Winners::join("a winner that lost its lock cuts its handlers").await;
    let first = winners.recover(0, 45 * SECOND).await.unwrap();
    until("it handles", async || winners.counted()[0] == 1).await;
    let other = &winners.clients[1];
    let fence = other.inspect("recovery:payments").await.unwrap().held().unwrap().fence;
    assert!(other.force_release("recovery:payments", fence).await.unwrap().was_held());
    // Nobody else may scan until the handler was cut.
    let taken = other.lock("recovery:payments").keep_alive().acquire().await.unwrap();
    until("the loss is noticed", async || winners.counted()[0] == 0).await;
    tokio::time::sleep(20 * SECOND).await;
    assert_eq!(winners.counted(), [0, 1, 1], "it scans without the lock");
    let _ = taken.release().await.unwrap();
    until_empty(&winners.pool).await;
    assert_eq!(winners.counted(), [0, 1, 1]);
    assert!(first.stop().await);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_outlives_the_grace_is_cut_off_and_its_deadline_comes_back() {
    let leases = client("").await;
    let pool = leases.deadlines("payments");
    fill(&pool, 1).await;
    let recovery = pool.recover(async |_: Due| pending::<Handled>().await).grace(5 * SECOND).await.unwrap();
    tokio::time::sleep(SECOND).await;
    let began = Instant::now();
    assert!(!recovery.stop().await);
    assert_eq!(began.elapsed().as_secs(), 5);
    tokio::time::sleep(54 * SECOND).await;
    assert_eq!(pool.claim().limit(1).visibility(MINUTE).await.unwrap().due[0].attempt(), 2);
    assert_eq!(leases.stats().deadlines_timed_out, 0);
}

#[tokio::test(start_paused = true)]
async fn it_stops_when_told_when_dropped_and_when_the_client_is_closed() {
    let leases = client("").await;
    let pool = leases.deadlines("payments");
    let recover = || pool.recover(async |_: Due| Handled::Ok(())).every(SECOND);
    let told = recover().stop_when(tokio::time::sleep(10 * SECOND)).await.unwrap();
    let began = Instant::now();
    assert!(told.ended().await);
    assert_eq!(began.elapsed().as_secs(), 10);
    drop(recover().await.unwrap());
    tokio::time::sleep(SECOND).await;
    fill(&pool, 1).await;
    tokio::time::sleep(MINUTE).await;
    assert_eq!(pool.stats().await.unwrap().due, 1);
    let closed = recover().await.unwrap();
    tokio::time::sleep(SECOND).await;
    leases.close().await.unwrap();
    closed.ended().await;
}
