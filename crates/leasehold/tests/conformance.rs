//! Every engine keeps every promise: one run per engine, and the suite itself on engines that break some.

#[cfg(feature = "redis")]
#[path = "conformance/cluster.rs"]
mod cluster;
#[cfg(feature = "etcd")]
#[path = "conformance/etcd.rs"]
mod etcd;
#[cfg(feature = "memory")]
#[path = "conformance/memory.rs"]
mod memory;
#[cfg(feature = "postgres")]
#[path = "conformance/postgres.rs"]
mod postgres;
#[cfg(feature = "redis")]
#[path = "conformance/quorum.rs"]
mod quorum;
#[cfg(feature = "redis")]
#[path = "conformance/redis.rs"]
mod redis;
#[cfg(feature = "redis")]
#[path = "conformance/sentinel.rs"]
mod sentinel;
#[cfg(feature = "sqlite")]
#[path = "conformance/sqlite.rs"]
mod sqlite;
#[cfg(feature = "memory")]
#[path = "conformance/suite.rs"]
mod suite;

#[cfg(feature = "memory")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_conforms() {
    leasehold_testkit::conformance::run("memory", memory::MemoryFixture::default()).await.conclude();
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_conforms() {
    leasehold_testkit::conformance::run("sqlite", sqlite::SqliteFixture::new()).await.conclude();
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_conforms() {
    if let Some(fixture) = postgres::PostgresFixture::start_or_skip() {
        leasehold_testkit::conformance::run("postgres", fixture).await.conclude();
    }
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_pgbouncer_conforms() {
    if let Some(fixture) = postgres::PostgresFixture::through_pgbouncer_or_skip() {
        leasehold_testkit::conformance::run("postgres, pgbouncer", fixture).await.conclude();
    }
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_conforms() {
    if let Some(fixture) = redis::RedisFixture::start_or_skip() {
        leasehold_testkit::conformance::run("redis", fixture).await.conclude();
    }
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_that_orders_strings_by_a_locale_conforms() {
    if let Some(fixture) = redis::RedisFixture::with_locale_or_skip() {
        leasehold_testkit::conformance::run("redis, en_US.UTF-8", fixture).await.conclude();
    }
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quorum_conforms() {
    if let Some(fixture) = quorum::QuorumFixture::start_or_skip().await {
        leasehold_testkit::conformance::run("quorum", fixture).await.conclude();
    }
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quorum_with_one_of_three_dead_conforms() {
    if let Some(fixture) = quorum::QuorumFixture::with_one_dead().await {
        leasehold_testkit::conformance::run("quorum, one dead", fixture).await.conclude();
    }
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quorum_with_one_of_three_stopped_conforms() {
    if let Some(fixture) = quorum::QuorumFixture::with_one_stopped().await {
        leasehold_testkit::conformance::run("quorum, one stopped", fixture).await.conclude();
    }
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_cluster_conforms() {
    if let Some(fixture) = cluster::ClusterFixture::start_or_skip() {
        leasehold_testkit::conformance::run("redis-cluster", fixture).await.conclude();
    }
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_sentinel_conforms() {
    if let Some(fixture) = sentinel::SentinelFixture::start_or_skip() {
        leasehold_testkit::conformance::run("redis-sentinel", fixture).await.conclude();
    }
}

#[cfg(feature = "etcd")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_conforms() {
    if let Some(fixture) = etcd::EtcdFixture::start_or_skip(1) {
        leasehold_testkit::conformance::run("etcd", fixture).await.conclude();
    }
}

#[cfg(feature = "etcd")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_cluster_conforms() {
    if let Some(fixture) = etcd::EtcdFixture::start_or_skip(3) {
        leasehold_testkit::conformance::run("etcd, three members", fixture).await.conclude();
    }
}

/// An engine is `memory`, or a crate that a feature turns on.
#[test]
fn every_engine_has_its_run() {
    let manifest = include_str!("../Cargo.toml");
    let runs = include_str!("conformance.rs");
    let crates = manifest.split("\"dep:leasehold-").skip(1).filter_map(|rest| rest.split('"').next());
    let engines: Vec<_> = crates.chain(["memory"]).collect();
    for name in &engines {
        assert!(runs.contains(&format!("\nasync fn {name}_conforms()")), "{name} has no run here");
    }
    assert!(engines.len() >= 5, "{engines:?}");
}
