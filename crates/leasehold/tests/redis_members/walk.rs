//! The scripts decide as the pure decider does.

use leasehold::Leasehold;
use leasehold_testkit::walk::compare;

use super::every_server::{Servers, open};

/// On one server; others have the same scripts, and get a few.
const WALKS: u64 = 40;
const WALKS_ELSEWHERE: u64 = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_decide_as_the_pure_decider_does() {
    for servers in Servers::all() {
        let walks = if let Servers::One(_) = servers { WALKS } else { WALKS_ELSEWHERE };
        for seed in 0..walks {
            let memory = Leasehold::builder("memory:").into_engine().unwrap();
            compare(open(servers.url()), memory, seed).await;
        }
    }
}
