//! Sets of servers: they start from the files in `deploy/`, break on command, and never stay behind.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::Duration;

use leasehold_testkit::resp::{Connection, Reply};
use leasehold_testkit::{ClusterSet, Helper, QuorumSet, RedisServer, SentinelSet, eventually};

const SOON: Duration = Duration::from_secs(30);

#[test]
fn helper_process() {
    match Helper::role().as_deref() {
        None => {}
        Some("holds a set") => {
            let set = SentinelSet::builder().start().unwrap();
            Helper::say(&format!("serves {}", addrs(set.nodes().iter().chain(set.sentinels())).join(" ")));
            // Starting threads leaves a wake-up behind: one call would return at once.
            loop {
                thread::park();
            }
        }
        Some(role) => panic!("no such role: {role}"),
    }
}

fn addrs<'a>(servers: impl IntoIterator<Item = &'a RedisServer>) -> Vec<String> {
    servers.into_iter().map(|server| server.addr().to_string()).collect()
}

fn serves(addr: SocketAddr) -> bool {
    Connection::tcp(addr).and_then(|mut connection| connection.ping()).is_ok()
}

fn none_serves(addrs: &[String]) -> bool {
    addrs.iter().all(|addr| !serves(addr.parse().unwrap()))
}

fn setting(server: &RedisServer, name: &str) -> String {
    server.cli(&["CONFIG", "GET", name]).list()[1].text().to_owned()
}

/// Sets `key` to `v` and waits until the replicas have it: `WAIT` counts for the writes of its own connection.
fn write_through(primary: &RedisServer, key: &str, replicas: i64) {
    let mut connection = primary.connect().unwrap();
    assert_eq!(connection.command(&["SET", key, "v"]).unwrap().text(), "OK");
    assert_eq!(connection.command(&["WAIT", &replicas.to_string(), "9000"]).unwrap().int(), replicas);
}

fn deploy(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_file_for_one_node_evicts_no_lock_and_forgets_none() {
    let Some(server) = RedisServer::builder().file(deploy("redis/redis.conf")).start_or_skip() else {
        return;
    };
    assert_eq!(setting(&server, "maxmemory-policy"), "noeviction");
    server.cli(&["SET", "k", "v"]);
    server.shutdown();
    assert!(!server.is_up());
    server.restart_with_data();
    assert_eq!(server.cli(&["GET", "k"]).text(), "v");
    server.restart();
    assert!(server.cli(&["GET", "k"]).is_nil());
}

#[test]
fn every_file_for_a_set_is_mounted_by_the_compose_file() {
    let compose = deploy("compose.yaml");
    for file in ["sentinel/primary.conf", "sentinel/replica.conf", "sentinel/sentinel.conf"]
        .into_iter()
        .chain(["cluster/node.conf", "quorum/node.conf"])
    {
        assert!(!deploy(file).is_empty());
        assert!(compose.contains(&format!("./{file}:")), "{file}");
    }
}

#[test]
fn voters_are_independent_and_forget_only_on_request() {
    let Some(set) = QuorumSet::builder(3).arg("maxmemory", "8mb").start_or_skip() else { return };
    assert_eq!(set.url(), format!("redlock://{}", addrs(set.nodes()).join(",")));
    let [first, second, third] = set.nodes() else { panic!("three nodes") };
    for node in set.nodes() {
        assert_eq!(setting(node, "appendfsync"), "always");
        assert_eq!(setting(node, "maxmemory").parse(), Ok(8 << 20));
        assert_eq!(node.info("role").as_deref(), Some("master"));
        node.cli(&["SET", "vote", &node.port().to_string()]);
    }
    first.kill();
    assert!(!first.is_up() && second.is_up());
    second.stop();
    assert!(!second.is_up() && third.is_up());
    second.cont();
    assert_eq!(second.cli(&["GET", "vote"]).int(), i64::from(second.port()));
    first.restart_with_data();
    assert_eq!(first.cli(&["GET", "vote"]).int(), i64::from(first.port()));
    third.restart();
    assert!(third.cli(&["GET", "vote"]).is_nil());

    let addrs = addrs(set.nodes());
    drop(set);
    assert!(none_serves(&addrs));
}

#[test]
fn a_planned_failover_names_another_primary_that_has_the_data() {
    let Some(set) = SentinelSet::builder().arg("maxmemory", "8mb").start_or_skip() else { return };
    let sentinels = addrs(set.sentinels()).join(",");
    assert_eq!(set.url(), format!("redis-sentinel://{sentinels}/{}", SentinelSet::NAME));
    assert_eq!((set.nodes().len(), set.sentinels().len()), (3, 3));
    let old = set.primary();
    assert_eq!(old.port(), set.nodes()[0].port());
    assert_eq!(setting(set.replicas()[0], "maxmemory").parse(), Ok(8 << 20));
    for replica in ["slave0", "slave1"] {
        let seen = old.info(replica).unwrap();
        assert!(seen.contains("state=online") && !seen.contains("offset=0,"), "gets no writes yet: {seen}");
    }
    write_through(old, "k", 2);

    let new = set.failover();
    assert_ne!(new.port(), old.port());
    assert_eq!(new.port(), set.primary().port());
    assert_eq!(new.cli(&["GET", "k"]).text(), "v");
    set.await_healthy();
    assert!(old.cli(&["SET", "k", "x"]).error().unwrap().starts_with("READONLY"));

    // A sentinel that comes back still knows what it learned.
    let sentinel = &set.sentinels()[0];
    let id = sentinel.cli(&["SENTINEL", "MYID"]);
    sentinel.restart();
    assert_eq!(sentinel.cli(&["SENTINEL", "MYID"]), id);
    set.await_healthy();
    assert_ne!(set.failover().port(), new.port());

    let addrs = addrs(set.nodes().iter().chain(set.sentinels()));
    drop(set);
    assert!(none_serves(&addrs));
}

#[test]
fn a_killed_or_silent_primary_is_replaced_and_comes_back_as_a_replica() {
    let Some(set) = SentinelSet::builder().replicas(1).start_or_skip() else { return };
    let killed = set.primary();
    killed.kill();
    let second = set.await_primary_other_than(killed.port());
    second.cli(&["SET", "k", "v"]);
    killed.restart_with_data();
    set.await_healthy();
    assert_eq!(killed.info("role").as_deref(), Some("slave"));
    assert_eq!(killed.cli(&["GET", "k"]).text(), "v");
    // Its place is also written down: it does not come back as a second primary.
    let followed = |server: &RedisServer| setting(server, "replicaof");
    eventually(SOON, "the replica to write its place down", || {
        followed(killed) == format!("127.0.0.1 {}", second.port())
    });

    second.stop();
    let third = set.await_primary_other_than(second.port());
    assert_eq!(third.port(), killed.port());
    second.cont();
    set.await_healthy();
    assert_eq!(set.primary().port(), third.port());
}

#[test]
fn a_sentinel_set_with_passwords_fails_over() {
    let builder = SentinelSet::builder().password("data pw").sentinel_password("watch pw");
    let Some(set) = builder.start_or_skip() else { return };
    let sentinels = addrs(set.sentinels()).join(",");
    assert_eq!(
        set.url(),
        format!("redis-sentinel://:data%20pw@{sentinels}/leasehold?sentinel-password=watch%20pw")
    );
    for server in set.nodes().iter().chain(set.sentinels()) {
        let reply = Connection::tcp(server.addr()).unwrap().command(&["INFO"]).unwrap();
        assert!(reply.error().unwrap().starts_with("NOAUTH"), "{reply:?}");
    }
    let killed = set.primary();
    killed.kill();
    set.await_primary_other_than(killed.port());
}

#[test]
fn a_set_dies_with_a_killed_process() {
    if RedisServer::shared_or_skip().is_none() {
        return;
    }
    let helper = Helper::spawn("holds a set", &[]);
    let line = helper.wait_for_line("serves ", SOON);
    let addrs: Vec<String> = line.split(' ').map(str::to_owned).collect();
    assert_eq!(addrs.len(), 6);
    assert!(addrs.iter().all(|addr| serves(addr.parse().unwrap())));
    helper.kill9();
    eventually(SOON, "the servers of the killed process to die", || none_serves(&addrs));
}

#[test]
fn a_cluster_serves_each_key_where_it_says() {
    let Some(set) = ClusterSet::builder().start_or_skip() else { return };
    assert_eq!(set.url(), format!("redis-cluster://{}", addrs(&set.nodes()[..3]).join(",")));
    assert_eq!((set.nodes().len(), set.primaries().len()), (6, 3));
    for key in ["", "foo", "lock:job", "a{b}c", "{}a{b}", "a}{b", "{a", "leasehold:fence:{lock:job}", "käse"]
    {
        let slot = set.nodes()[0].cli(&["CLUSTER", "KEYSLOT", key]).int();
        assert_eq!(i64::from(ClusterSet::slot(key)), slot, "{key:?}");
        assert_eq!(set.primary_of(key).cli(&["SET", key, "v"]).text(), "OK", "{key:?}");
    }
    for primary in set.primaries() {
        let name = set.name_on(primary, "job-");
        assert_eq!(set.primary_of(&format!("lock:{name}")).port(), primary.port());
        assert!(set.replica_of(primary).info("master_port") == Some(primary.port().to_string()));
        for other in set.primaries().into_iter().filter(|other| other.port() != primary.port()) {
            let reply = other.cli(&["GET", &set.key_on(primary, "k")]);
            assert!(reply.error().unwrap().starts_with("MOVED"), "{reply:?}");
        }
    }

    let old = set.primary_of("foo");
    let new = set.failover_of(old);
    set.await_ok();
    assert_eq!(set.primary_of("foo").port(), new.port());
    assert_eq!(set.replica_of(new).port(), old.port());
    assert_eq!(new.cli(&["GET", "foo"]).text(), "v");

    let addrs = addrs(set.nodes());
    drop(set);
    assert!(none_serves(&addrs));
}

#[test]
fn a_killed_primary_is_replaced_by_its_replica_with_the_data() {
    let Some(set) = ClusterSet::builder().start_or_skip() else {
        return;
    };
    let (killed, replica) = (set.primary_of("foo"), set.replica_of(set.primary_of("foo")));
    write_through(killed, "foo", 1);
    killed.kill();
    let new = set.await_new_primary_of("foo", killed);
    assert_eq!(new.port(), replica.port());
    assert_eq!(new.cli(&["GET", "foo"]).text(), "v");
    assert_eq!(set.primaries().len(), 3);
    killed.restart_with_data();
    set.await_ok();
    assert_eq!(set.replica_of(new).port(), killed.port());
}

#[test]
fn one_dead_shard_costs_only_its_own_keys() {
    let builder = ClusterSet::builder().replicas(0).node_timeout(Duration::from_secs(1));
    let Some(set) = builder.start_or_skip() else { return };
    let [dead, alive, _] = set.primaries()[..] else { panic!("three primaries") };
    let key = set.key_on(alive, "k");
    dead.kill();
    let believed_dead = |line: &str| line.contains(&format!(":{}@", dead.port())) && line.contains("fail ");
    eventually(SOON, "the dead node to be missed", || {
        alive.cli(&["CLUSTER", "NODES"]).text().lines().any(believed_dead)
    });
    set.await_ok();
    assert_eq!(alive.cli(&["SET", &key, "v"]).text(), "OK");
    assert_eq!(set.primaries().len(), 3, "nobody takes the place of a node without a replica");
}

#[test]
fn a_slot_moves_with_its_keys_step_by_step_or_at_once() {
    let Some(set) = ClusterSet::builder().replicas(0).password("p w").start_or_skip() else { return };
    assert!(set.url().starts_with("redis-cluster://:p%20w@127.0.0.1:"));
    let [from, to, third] = set.primaries()[..] else { panic!("three primaries") };
    let tag = set.key_on(from, "t");
    let (slot, early, late) = (ClusterSet::slot(&tag), format!("{{{tag}}}early"), format!("{{{tag}}}late"));
    let get = |node: &RedisServer, key: &str| node.cli(&["GET", key]);
    let refusal = |reply: Reply| reply.error().unwrap_or_default().to_owned();
    for key in [&early, &late] {
        from.cli(&["SET", key, "v"]);
    }

    set.begin_move(slot, from, to);
    set.migrate_keys(from, to, &[&early]);
    assert_eq!(refusal(get(from, &early)), format!("ASK {slot} {}", to.addr()));
    assert_eq!(get(from, &late).text(), "v");
    assert_eq!(refusal(get(to, &early)), format!("MOVED {slot} {}", from.addr()));
    let mut asking = to.connect().unwrap();
    asking.command(&["ASKING"]).unwrap();
    assert_eq!(asking.command(&["GET", &early]).unwrap().text(), "v");
    assert_eq!(set.primary_of(&early).port(), from.port(), "it moves only at the end");

    set.migrate_slot(slot, from, to);
    set.end_move(slot, to);
    assert_eq!(set.primary_of(&early).port(), to.port());
    assert_eq!((get(to, &early).text(), get(to, &late).text()), ("v", "v"));
    assert_eq!(refusal(get(from, &late)), format!("MOVED {slot} {}", to.addr()));

    set.move_slot(slot, third);
    set.move_slot(slot, third);
    set.await_ok();
    assert_eq!((get(third, &early).text(), get(third, &late).text()), ("v", "v"));
}
