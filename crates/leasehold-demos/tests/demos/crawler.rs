//! The demo `crawler`, as a user starts it.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::Duration,
};

use leasehold::{Leasehold, engine::MemberState};
use leasehold_testkit::{QuorumSet, eventually_async};

use crate::demo_run::DemoRun;

const CRAWLER: &str = env!("CARGO_BIN_EXE_crawler");
const FETCHED: &str = "select count(*) from pages where crawler is not null";

#[test]
fn no_two_requests_to_a_domain_meet_and_a_domain_of_another_worker_is_logged() {
    let ended = DemoRun::start(CRAWLER, &["--scale", "20"]).end();
    ended.held();
    let refused = ended.number("times a domain was locked by another worker");
    let logged = ended.logs.lines().filter(|line| line.ends_with(" locked by another worker")).count() as u64;
    // A crawler may be killed between the line and the count.
    assert!(refused > 0 && (refused..=refused + 12).contains(&logged), "{refused} {logged}");
}

#[test]
fn without_locks_requests_to_one_domain_meet() {
    let ended = DemoRun::start(CRAWLER, &["--scale", "20", "--unsafe"]).end();
    ended.broke("requests while the domain had another one");
}

#[test]
fn a_demo_that_is_interrupted_leaves_nothing_behind() {
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        let folder = tempfile::tempdir().unwrap();
        let mut demo = Command::new(CRAWLER)
            .env("TMPDIR", folder.path())
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let is_empty = || std::fs::read_dir(folder.path()).unwrap().next().is_none();
        let mut lines = BufReader::new(demo.stderr.take().unwrap()).lines();
        let started = lines.find(|line| line.as_ref().unwrap().contains("crawler: pid"));
        assert!(started.is_some() && !is_empty());
        rustix::process::kill_process(rustix::process::Pid::from_child(&demo), signal).unwrap();
        let said: Vec<_> = lines.map(Result::unwrap).collect();
        assert_eq!(demo.wait().unwrap().code(), Some(70), "{said:?}");
        assert!(said.iter().any(|line| line.contains("interrupted")), "{said:?}");
        assert!(is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_of_five_nodes_come_back_empty_and_crawlers_stay_apart() {
    let Some(nodes) = QuorumSet::builder(5).arg("appendfsync", "no").start_or_skip() else { return };
    let max_ttl = Duration::from_secs(2);
    let leases = Leasehold::builder(nodes.url())
        .configure(|config| (config.ttl, config.max_ttl) = (max_ttl, max_ttl))
        .connect_lazy()
        .unwrap();
    leases.quorum().unwrap().admit_new().await.unwrap();
    let pages = 3600;
    let run = DemoRun::start(CRAWLER, &["--scale", "60", "--store", &nodes.url()]);
    run.until(FETCHED, pages / 8, pages / 2);
    nodes.nodes()[..2].iter().for_each(|node| node.kill());
    run.until(FETCHED, pages / 5, pages / 2);
    nodes.nodes()[..2].iter().for_each(|node| node.restart());
    let vote = || async {
        let members = leases.quorum().unwrap().list().await;
        members.iter().all(|member| member.state == MemberState::Votes)
    };
    eventually_async(Duration::from_secs(60), "all nodes to vote again", vote).await;
    // From here on the nodes that lost their data are needed for every majority.
    nodes.nodes()[3..].iter().for_each(|node| node.kill());
    run.until(FETCHED, pages / 5, pages - 1);
    run.end().held();
}
