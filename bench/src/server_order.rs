//! Who queued and who was granted, in the order of the server's own commands.

use std::collections::HashMap;

use leasehold_testkit::RedisServer;

use crate::{Failure, monitor::Monitor};

/// Watches one lock.
pub(crate) struct ServerOrder(Monitor<Queue>);

/// What happened to the lock.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Seen {
    pub(crate) grants: usize,
    /// Grants while somebody waited who had come earlier.
    pub(crate) overtakings: usize,
}

impl ServerOrder {
    pub(crate) fn watch(server: &RedisServer, name: &str) -> Result<Self, Failure> {
        Ok(Self(Monitor::watch(server, Queue::new(name), Queue::take_in)?))
    }

    pub(crate) fn end(self) -> Result<Seen, Failure> {
        Ok(self.0.end()?.seen)
    }
}

/// The queue as the commands build it.
struct Queue {
    lock: String,
    waiters: String,
    /// Arrival by the id of an attempt.
    arrivals: HashMap<String, f64>,
    /// The same of those who have left the queue: a hand-over takes its receiver out first.
    left: HashMap<String, f64>,
    is_held: bool,
    seen: Seen,
}

impl Queue {
    fn new(name: &str) -> Self {
        Self {
            lock: format!("lock:{name}"),
            waiters: format!("leasehold:waiters:{{lock:{name}}}"),
            arrivals: HashMap::new(),
            left: HashMap::new(),
            is_held: false,
            seen: Seen::default(),
        }
    }

    /// A line is `+TIME [DB CLIENT] "COMMAND" "KEY" "ARGUMENT"…`.
    fn take_in(&mut self, line: &str) {
        let Some((_, command)) = line.split_once("] \"") else { return };
        let words: Vec<_> = command.trim_end_matches('"').split("\" \"").collect();
        match words.as_slice() {
            ["ZADD", key, arrival, entry] if *key == self.waiters => {
                if let (Some(id), Ok(arrival)) = (id_of_entry(entry), arrival.parse()) {
                    self.arrivals.insert(id.to_owned(), arrival);
                }
            }
            ["ZREM", key, entries @ ..] if *key == self.waiters => {
                let ids = entries.iter().filter_map(|entry| id_of_entry(entry));
                self.left.extend(ids.filter_map(|id| self.arrivals.remove_entry(id)));
            }
            // Without a ttl it is only marked, and of several in one call the first gets it.
            ["SET", key, owner, "PX", _, only_if_free @ ..]
                if *key == self.lock && (only_if_free.is_empty() || !self.is_held) =>
            {
                self.granted(owner.split(' ').next().unwrap_or_default());
            }
            ["DEL", keys @ ..] if keys.contains(&self.lock.as_str()) => self.is_held = false,
            _ => {}
        }
    }

    fn granted(&mut self, id: &str) {
        self.seen.grants += 1;
        self.is_held = true;
        // One who never queued comes after all who did.
        let arrival = self.arrivals.remove(id).or_else(|| self.left.remove(id)).unwrap_or(f64::INFINITY);
        if self.arrivals.values().any(|earlier| *earlier < arrival) {
            self.seen.overtakings += 1;
        }
    }
}

/// An entry is `2 px wait live channel id rest`.
fn id_of_entry(entry: &str) -> Option<&str> {
    entry.split(' ').nth(5)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(lines: &[&str]) -> Seen {
        let mut queue = Queue::new("x");
        lines.iter().for_each(|line| queue.take_in(&format!("+1.5 [0 lua] {line}")));
        queue.seen
    }

    const A_QUEUES: &str = r#""ZADD" "leasehold:waiters:{lock:x}" "10" "2 1 1 1 wake:1 aa 1 2 host""#;
    const B_QUEUES: &str = r#""ZADD" "leasehold:waiters:{lock:x}" "11" "2 1 1 1 wake:1 bb 1 2 host""#;
    const A_GETS_IT: &str = r#""SET" "lock:x" "aa 7 1 2 host" "PX" "30000""#;
    const B_GETS_IT: &str = r#""SET" "lock:x" "bb 8 1 2 host" "PX" "30000""#;

    #[test]
    fn in_order_nobody_is_overtaken() {
        let lines = [A_QUEUES, B_QUEUES, A_GETS_IT, B_GETS_IT];
        assert_eq!(seen(&lines), Seen { grants: 2, overtakings: 0 });
    }

    #[test]
    fn a_grant_to_the_second_is_counted() {
        let lines = [A_QUEUES, B_QUEUES, B_GETS_IT, A_GETS_IT];
        assert_eq!(seen(&lines), Seen { grants: 2, overtakings: 1 });
    }

    #[test]
    fn one_who_never_queued_overtakes_all_who_wait() {
        assert_eq!(seen(&[A_QUEUES, B_GETS_IT]), Seen { grants: 1, overtakings: 1 });
        assert_eq!(seen(&[B_GETS_IT, A_QUEUES]), Seen { grants: 1, overtakings: 0 });
    }

    #[test]
    fn of_several_that_ask_in_one_call_one_gets_it() {
        let only_if_free = |line: &str| format!(r#"{line} "NX""#);
        let [a, b] = [A_GETS_IT, B_GETS_IT].map(only_if_free);
        assert_eq!(seen(&[&a, &b]), Seen { grants: 1, overtakings: 0 });
        assert_eq!(seen(&[&a, r#""DEL" "lock:y" "lock:x""#, &b]), Seen { grants: 2, overtakings: 0 });
    }

    #[test]
    fn one_who_left_is_not_overtaken() {
        let left = r#""ZREM" "leasehold:waiters:{lock:x}" "2 1 1 1 wake:1 aa 1 2 host""#;
        assert_eq!(seen(&[A_QUEUES, B_QUEUES, left, B_GETS_IT]), Seen { grants: 1, overtakings: 0 });
        // A hand-over takes its receiver out of the queue first.
        assert_eq!(seen(&[A_QUEUES, B_QUEUES, left, A_GETS_IT]), Seen { grants: 1, overtakings: 0 });
        let left = r#""ZREM" "leasehold:waiters:{lock:x}" "2 1 1 1 wake:1 bb 1 2 host""#;
        assert_eq!(seen(&[A_QUEUES, B_QUEUES, left, B_GETS_IT]), Seen { grants: 1, overtakings: 1 });
    }

    #[tokio::test]
    async fn the_commands_of_the_library_are_understood() {
        let Some(server) = leasehold_testkit::redis_or_skip() else { return };
        let leases = leasehold::Leasehold::connect(server.url()).await.unwrap();
        let order = ServerOrder::watch(&server, "x").unwrap();
        let first = leases.lock("x").acquire().await.unwrap();
        let lock = leases.lock("x");
        let second = tokio::spawn(async move { lock.acquire().await });
        let queue = ["ZCARD", "leasehold:waiters:{lock:x}"];
        let patience = std::time::Duration::from_secs(60);
        leasehold_testkit::eventually_async(patience, "it waits", async || server.cli(&queue).int() == 1)
            .await;
        let _ = first.release().await.unwrap();
        let _ = second.await.unwrap().unwrap().release().await.unwrap();
        assert_eq!(order.end().unwrap(), Seen { grants: 2, overtakings: 0 });
    }
}
