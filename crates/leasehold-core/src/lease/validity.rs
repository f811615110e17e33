//! How long a lease can be trusted. Pure: reads no clock, does no I/O.

use std::time::Duration;

use crate::{clock::BootInstant, engine::Grant};

/// Shortest ttl. Below it scheduling noise alone would lose leases.
pub const TTL_MIN: Duration = Duration::from_millis(50);
/// Longest ttl unless the configuration raises it knowingly.
pub const TTL_MAX_DEFAULT: Duration = Duration::from_secs(300);
/// Longest ttl that a configuration can allow.
pub const TTL_MAX_LIMIT: Duration = Duration::from_secs(86_400);

/// The end of a lease that cannot have started before `since`.
///
/// Clocks of two machines may run at slightly different rates: 1 % and 2 ms are given away for it.
pub fn valid_until(since: BootInstant, ttl: Duration) -> BootInstant {
    since + ttl.saturating_sub(drift(ttl))
}

/// What is given away for clocks that run at different rates.
pub fn drift(ttl: Duration) -> Duration {
    ttl / 100 + Duration::from_millis(2)
}

/// How long before the end of validity a lease counts as lost, so that its holder can still stop in time.
pub fn margin(ttl: Duration) -> Duration {
    (ttl / 20).max(Duration::from_millis(20))
}

/// A grant with less left than this is given back: its holder could do nothing useful with it.
pub fn least_remaining(ttl: Duration) -> Duration {
    ttl / 4
}

/// Whether a grant has enough left to be used.
pub fn is_worth_having(grant: &Grant, now: BootInstant) -> bool {
    valid_until(grant.since, grant.ttl).since(now) >= least_remaining(grant.ttl)
}

/// When a kept-alive lease is renewed.
pub fn renew_interval(ttl: Duration) -> Duration {
    ttl / 3
}

/// Whether a hand-over message still leaves enough time to be used as it is. Otherwise the claim is sent again,
/// which refreshes the lease if it is still ours.
pub fn handover_is_fresh(grant: &Grant, now: BootInstant) -> bool {
    valid_until(grant.since, grant.ttl).since(now) > grant.ttl / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fence::Fence;
    use proptest::prelude::*;

    const T0: BootInstant = BootInstant::from_nanos(1_000_000_000_000);

    #[test]
    fn a_lease_of_thirty_seconds_ends_302_ms_early() {
        assert_eq!(valid_until(T0, Duration::from_secs(30)).since(T0), Duration::from_millis(29_698));
    }

    #[test]
    fn a_handover_that_waited_half_its_ttl_is_not_fresh() {
        let grant = Grant { fence: Fence::new(1), since: T0, ttl: Duration::from_secs(10), acks: 0 };
        assert!(handover_is_fresh(&grant, T0 + Duration::from_secs(4)));
        assert!(!handover_is_fresh(&grant, T0 + Duration::from_secs(5)));
    }

    #[test]
    fn a_handover_whose_start_is_not_known_is_not_fresh() {
        let since = BootInstant::from_nanos(0);
        let grant = Grant { fence: Fence::new(1), since, ttl: Duration::ZERO, acks: 0 };
        assert!(!handover_is_fresh(&grant, T0));
    }

    proptest! {
        #[test]
        fn validity_ends_before_the_stores_ttl_even_on_a_clock_one_percent_slow(ttl_ms in 50u64..86_400_000) {
            let ttl = Duration::from_millis(ttl_ms);
            // Our clock shows 99 % of the time that passes at the store.
            let at_store = valid_until(T0, ttl).since(T0).as_secs_f64() / 0.99;
            prop_assert!(at_store < ttl.as_secs_f64());
        }

        #[test]
        fn the_shortest_lease_still_has_time_between_grant_and_margin(ttl_ms in 50u64..86_400_000) {
            let ttl = Duration::from_millis(ttl_ms);
            let usable = valid_until(T0, ttl).since(T0).saturating_sub(margin(ttl));
            prop_assert!(usable > least_remaining(ttl));
            prop_assert!(renew_interval(ttl) < usable);
        }
    }
}
