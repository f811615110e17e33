//! Acquires of every kind that are dropped at any poll: a stranger gets the whole name soon after, long before any ttl ends, and
//! nothing is left behind.

use futures_util::future::join_all;
use leasehold::{Leadership, Leasehold, LockSet, Result, Upgrade};

use super::{
    TestContext,
    context::{ms, poll_at_most, sleep},
};

/// More polls than an acquire of a free lock needs here; it then completes.
const POLLS: usize = 41;
/// A set asks for several locks.
const POLLS_OF_A_SET: usize = 61;

cases! {
    a_reader_dropped_at_any_poll_frees_its_name: Shared,
    permits_dropped_at_any_poll_free_their_name: Permits,
    a_set_of_all_kinds_dropped_at_any_poll_frees_its_names: Shared Permits,
    a_campaign_dropped_at_any_poll_frees_its_name,
    an_owner_dropped_at_any_poll_frees_its_name,
    a_change_of_mode_dropped_at_any_poll_frees_its_name: Convert,
}

/// Drops acquires of free names and of names that are handed over, each after so many polls. `whole` is what nobody can have
/// while anything of the name is held or waited for.
async fn frees_its_name<T>(
    test: TestContext,
    polls: usize,
    acquire: impl AsyncFn(&Leasehold, &str) -> Result<T>,
    whole: fn(&Leasehold, &str) -> LockSet,
) {
    // An answer may take long where so many ask at once; nothing here is about that.
    let patient = async || test.client_with(|builder| builder.command_timeout(ms(10_000))).await;
    let (client, stranger) = (patient().await, patient().await);
    let get_whole = async |name: &str| {
        let whole = whole(&stranger, name).ttl(ms(60_000)).wait(ms(10_000));
        whole.acquire().await.unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    let (client, acquire, get_whole) = (&client, &acquire, &get_whole);
    let free = (0..polls).map(|polls| async move {
        let name = format!("free:{polls}");
        let ended = poll_at_most(polls, acquire(client, &name)).await;
        let has_ended = ended.map(|ended| drop(ended.unwrap_or_else(|error| panic!("{name}: {error}"))));
        assert!(get_whole(&name).await.release().await.was_held());
        has_ended.is_some()
    });
    let ended = join_all(free).await;
    assert!(!ended[0] && ended[polls - 1], "{ended:?}");
    let handed = (0..polls).map(|polls| async move {
        let name = format!("handed:{polls}");
        let held = get_whole(&name).await;
        // Given back while the acquire is somewhere between its first and its last poll.
        let give_back = async {
            sleep(ms(polls as u64 * 2)).await;
            assert!(held.release().await.was_held());
        };
        let (ended, ()) = tokio::join!(poll_at_most(polls, acquire(client, &name)), give_back);
        drop(ended);
        assert!(get_whole(&name).await.release().await.was_held());
    });
    join_all(handed).await;
    // It was free while the client was at work; nothing is left when it is gone.
    client.close().await.unwrap();
    test.assert_empty().await;
}

async fn a_reader_dropped_at_any_poll_frees_its_name(test: TestContext) {
    let acquire = async |client: &Leasehold, name: &str| {
        client.read_lock(name).ttl(ms(60_000)).wait(ms(5_000)).acquire().await
    };
    frees_its_name(test, POLLS, acquire, |client, name| client.lock_all([client.write_lock(name)])).await;
}

async fn permits_dropped_at_any_poll_free_their_name(test: TestContext) {
    let acquire = async |client: &Leasehold, name: &str| {
        client.semaphore(name, 5).permits(2).ttl(ms(60_000)).wait(ms(5_000)).acquire().await
    };
    let whole = |client: &Leasehold, name: &str| client.lock_all([client.semaphore(name, 5).permits(5)]);
    frees_its_name(test, POLLS, acquire, whole).await;
}

async fn a_set_of_all_kinds_dropped_at_any_poll_frees_its_names(test: TestContext) {
    fn of_all_kinds(client: &Leasehold, name: &str, permits: u32) -> LockSet {
        let member = |kind: &str| format!("{name}:{kind}");
        client.lock_all([
            client.lock(member("lock")),
            if permits == 5 { client.write_lock(member("read")) } else { client.read_lock(member("read")) },
            client.semaphore(member("permits"), 5).permits(permits),
        ])
    }
    let acquire = async |client: &Leasehold, name: &str| {
        of_all_kinds(client, name, 2).ttl(ms(60_000)).wait(ms(5_000)).acquire().await
    };
    frees_its_name(test, POLLS_OF_A_SET, acquire, |client, name| of_all_kinds(client, name, 5)).await;
}

fn exclusive(client: &Leasehold, name: &str) -> LockSet {
    client.lock_all([client.lock(name)])
}

async fn a_campaign_dropped_at_any_poll_frees_its_name(test: TestContext) {
    let acquire = async |client: &Leasehold, name: &str| {
        let body = async |leadership: Leadership| {
            tokio::task::yield_now().await;
            leadership.fence()
        };
        let election = client.election(name).ttl(ms(60_000)).wait(ms(5_000));
        election.lead(body).await.map_err(leasehold::Error::from)
    };
    frees_its_name(test, POLLS, acquire, exclusive).await;
}

async fn an_owner_dropped_at_any_poll_frees_its_name(test: TestContext) {
    let acquire = async |client: &Leasehold, name: &str| {
        let me = client.owner();
        let outer = me.lock(name).ttl(ms(60_000)).wait(ms(5_000)).acquire().await?;
        let inner = me.lock(name).acquire().await?;
        Ok((outer, inner))
    };
    frees_its_name(test, POLLS, acquire, exclusive).await;
}

async fn a_change_of_mode_dropped_at_any_poll_frees_its_name(test: TestContext) {
    let acquire = async |client: &Leasehold, name: &str| {
        let writer = client.write_lock(name).ttl(ms(60_000)).wait(ms(5_000)).acquire().await?;
        let reader = writer.downgrade().await?;
        match reader.try_upgrade().await? {
            Upgrade::Done(writer) | Upgrade::Busy(writer) => Ok(writer),
        }
    };
    frees_its_name(test, POLLS, acquire, exclusive).await;
}
