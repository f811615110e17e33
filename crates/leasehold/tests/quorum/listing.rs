//! A list of what a majority holds.

use std::time::Duration;

use leasehold::{Guard, Leasehold, engine::Cursor};
use leasehold_testkit::{QuorumSet, eventually_async};

use crate::fixture::{LONG, all_vote, client, has, quorum};

const MAX_TTL: Duration = Duration::from_secs(240);

/// Holds the names, on every node.
async fn held_everywhere(set: &QuorumSet, leases: &Leasehold, names: &[impl AsRef<str>]) -> Vec<Guard> {
    let mut guards = Vec::new();
    for name in names {
        guards.push(leases.lock(name).acquire().await.unwrap());
        let everywhere = || async { set.nodes().iter().all(|node| has(node, name.as_ref())) };
        eventually_async(LONG, "every node to have it", everywhere).await;
    }
    guards
}

/// All names, each as often as a list in pages of one shows it; `between` runs after every page with what came so far.
async fn listed(leases: &Leasehold, mut between: impl FnMut(&[String])) -> Vec<String> {
    let (mut names, mut from) = (Vec::new(), None);
    loop {
        let page = leases.list_page("job-", from, 1).await.unwrap();
        names.extend(page.items.iter().map(|item| item.name.to_string()));
        between(&names);
        let Some(next) = page.next else { break };
        from = Some(next);
    }
    names.sort_unstable();
    names
}

/// A majority decides early: the vote of the first node may come in while the list has passed it already.
#[tokio::test(flavor = "multi_thread")]
async fn a_vote_that_comes_in_during_a_list_hides_nothing() {
    let Some(set) = quorum(3, MAX_TTL).await else { return };
    let leases = client(&set, MAX_TTL);
    all_vote(&leases).await;
    let names = ["job-a", "job-b", "job-c"];
    let _guards = held_everywhere(&set, &leases, &names).await;
    let first = &set.nodes()[0];
    let owner = first.cli(&["GET", "lock:job-c"]).text().to_owned();
    first.cli(&["DEL", "lock:job-c"]);
    let shown = listed(&leases, |so_far| {
        if so_far.len() == 2 {
            first.cli(&["SET", "lock:job-c", &owner, "PX", "200000"]);
        }
    });
    assert_eq!(shown.await, names);
}

/// A process that has only the text of a cursor misses nothing; it may see a name on more than one page.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_goes_on_from_the_text_of_a_cursor() {
    let Some(set) = quorum(3, MAX_TTL).await else { return };
    let leases = client(&set, MAX_TTL);
    all_vote(&leases).await;
    let names: Vec<_> = (0..9).map(|number| format!("job-{number}")).collect();
    let _guards = held_everywhere(&set, &leases, &names).await;
    let (mut shown, mut from) = (Vec::new(), None);
    loop {
        let page = leases.list_page("job-", from, 2).await.unwrap();
        shown.extend(page.items.iter().map(|item| item.name.to_string()));
        let Some(next) = page.next else { break };
        from = Some(Cursor::new(next.as_str()));
    }
    shown.sort_unstable();
    shown.dedup();
    assert_eq!(shown, names);
}
