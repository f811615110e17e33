//! What the results should be.

use crate::report::Target::{self, AtLeast, AtMost};

/// One goal.
pub(crate) struct Goal {
    /// The outcome that it is about.
    pub(crate) key: &'static str,
    pub(crate) target: Target,
    /// Whether it is about a library in another language.
    pub(crate) needs_peers: bool,
    /// Whether the worst round counts instead of the median.
    pub(crate) in_every_round: bool,
}

const fn goal(key: &'static str, target: Target) -> Goal {
    Goal { key, target, needs_peers: false, in_every_round: false }
}

const fn with_peers(key: &'static str, target: Target) -> Goal {
    Goal { needs_peers: true, ..goal(key, target) }
}

const fn in_every_round(key: &'static str, target: Target) -> Goal {
    Goal { in_every_round: true, ..goal(key, target) }
}

/// What a cost that grows with the logarithm of the number of holders grows by from 10 to 500.
const LOG_500_PER_LOG_10: f64 = 2.7;

/// In the order of the report.
pub(crate) static GOALS: [Goal; 50] = [
    goal("cycle_p50_vs_rslock", AtMost(1.10)),
    goal("cycle_p50_vs_rslock_ct", AtMost(1.10)),
    goal("cycle_p50_vs_two_pings", AtMost(1.35)),
    goal("cycle_p50_vs_two_pings_ct", AtMost(1.35)),
    goal("throughput_64_vs_rslock", AtLeast(1.8)),
    goal("throughput_64_vs_rslock_ct", AtLeast(1.0)),
    goal("throughput_512_vs_rslock", AtLeast(1.5)),
    goal("throughput_512_vs_rslock_ct", AtLeast(1.0)),
    with_peers("throughput_64_vs_redisson_fenced", AtLeast(12.0)),
    with_peers("throughput_512_vs_redisson_fenced", AtLeast(12.0)),
    goal("contention_16_total_vs_holds", AtMost(1.12)),
    goal("contention_16_overtakings", AtMost(0.0)),
    goal("contention_100_total_vs_holds", AtMost(1.12)),
    goal("contention_100_overtakings", AtMost(0.0)),
    goal("handover_p50_vs_publish", AtMost(1.5)),
    goal("handover_p50_vs_publish_ct", AtMost(1.5)),
    with_peers("kept_10000_server_vs_redisson", AtMost(0.9)),
    goal("quorum_3_throughput_vs_rslock", AtLeast(0.9)),
    in_every_round("quorum_3_stopped_first_second_vs_healthy", AtLeast(0.9)),
    in_every_round("quorum_3_stopped_vs_healthy", AtLeast(0.9)),
    in_every_round("quorum_3_killed_first_second_vs_healthy", AtLeast(0.9)),
    in_every_round("quorum_3_killed_vs_healthy", AtLeast(0.9)),
    in_every_round("quorum_5_stopped_first_second_vs_healthy", AtLeast(0.9)),
    in_every_round("quorum_5_killed_first_second_vs_healthy", AtLeast(0.9)),
    with_peers("held_server_bytes_vs_redisson_fenced", AtMost(0.95)),
    goal("client_bytes_per_guard", AtMost(500.0)),
    with_peers("family_shared_64_vs_redisson", AtLeast(2.0)),
    with_peers("family_permits_64_vs_redisson", AtLeast(2.0)),
    goal("shared_cycle_p50_vs_exclusive", AtMost(1.3)),
    goal("permit_cycle_p50_vs_exclusive", AtMost(1.3)),
    goal("reader_beside_500_vs_beside_10", AtMost(LOG_500_PER_LOG_10)),
    goal("admit_500_readers_vs_one", AtMost(60.0)),
    goal("admit_500_readers_calls", AtMost(1.0)),
    goal("permit_commands_per_handover", AtMost(1.1)),
    goal("bytes_per_permit_holder", AtMost(300.0)),
    goal("reentry_commands", AtMost(0.0)),
    goal("lock_all_8_sent", AtMost(1.0)),
    goal("record_cycles_64_vs_lock_cycles", AtLeast(0.5)),
    goal("renewal_core_share", AtMost(0.005)),
    goal("renewal_client_core_share", AtMost(0.01)),
    goal("postgres_commits_16_vs_bare", AtLeast(0.9)),
    goal("postgres_handover_p50_vs_notify", AtMost(2.0)),
    goal("postgres_deadlines_vs_bare_update", AtLeast(0.5)),
    goal("etcd_cycle_p50_vs_two_transactions", AtMost(1.3)),
    goal("etcd_kept_client_core_share", AtMost(0.02)),
    goal("service_cycles_64_vs_library", AtLeast(0.4)),
    goal("session_renewal_calls", AtMost(20.0)),
    goal("service_mb_10000_event_clients", AtMost(300.0)),
    goal("dashboard_snapshot_5000_vs_inspect", AtMost(50.0)),
    goal("dashboard_kb", AtMost(60.0)),
];

/// What a result should be, if that is a goal.
pub(crate) fn target(key: &str) -> Target {
    of(key).map_or(Target::None, |goal| goal.target)
}

pub(crate) fn of(key: &str) -> Option<&'static Goal> {
    GOALS.iter().find(|goal| goal.key == key)
}
