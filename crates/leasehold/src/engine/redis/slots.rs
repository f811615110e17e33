//! How a cluster places names, and what it says about the place: pure.

use std::fmt;

use redis::Value;

use super::answer;
use crate::{
    engine::{
        EngineError, Fault,
        crc16::{POLYNOMIAL, crc16},
    },
    name::hash_tag,
};

/// How many parts a cluster's keys fall into.
pub(super) const SLOTS: u16 = 16384;

/// The slot of a key: only its hash tag counts, if it has one.
pub(super) fn slot(key: &str) -> u16 {
    slot_of_tag(hash_tag(key).unwrap_or(key))
}

/// The slot of all keys with this hash tag.
pub(super) fn slot_of_tag(tag: &str) -> u16 {
    crc16(tag.as_bytes()) % SLOTS
}

/// A short text without spaces that falls into a slot: what is to lie beside names of that slot can have it as its tag.
pub(super) fn tag_of(slot: u16) -> String {
    // Two bytes at the end can turn any checksum into any other; the text before them is varied until both are letters
    // or digits.
    (0_u16..)
        .flat_map(|start| (0..4).map(move |high| (start.to_string(), slot | high << 14)))
        .find_map(|(start, wanted)| {
            let before_both = (0..16).fold(wanted, |crc, _| {
                if crc & 1 == 0 { crc >> 1 } else { ((crc ^ POLYNOMIAL) >> 1) | 0x8000 }
            });
            let end = (before_both ^ crc16(start.as_bytes())).to_be_bytes();
            let readable = end.iter().all(u8::is_ascii_alphanumeric);
            readable.then(|| start + &end.map(char::from).iter().collect::<String>())
        })
        .unwrap_or_default()
}

/// Where a node of a cluster is reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
}

impl Address {
    /// `HOST:PORT`; a node that does not know its own host leaves it out and means the one we asked.
    pub(super) fn parse(text: &str, asked: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Some(Self::told(Some(host), port.parse().ok()?, asked))
    }

    /// Host and port as a node at `asked` tells them.
    pub(super) fn told(host: Option<&str>, port: u16, asked: &str) -> Self {
        Self { host: known_host(host, asked), port }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

fn known_host(told: Option<&str>, asked: &str) -> String {
    match told {
        None | Some("" | "?") => asked.to_owned(),
        Some(host) => host.trim_start_matches('[').trim_end_matches(']').to_owned(),
    }
}

/// What a node says instead of an answer, when it is not the one to ask or not ready to answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Redirection {
    /// The slot belongs to another node.
    Moved { slot: u16, to: Address },
    /// The slot is on its way to another node, and this name has arrived there already.
    Ask(Address),
    /// The slot is on its way, and the keys of this name are on both nodes.
    TryAgain,
}

impl Redirection {
    /// What an error says, if it is one. `asked` is the host that said it.
    pub(super) fn of(error: &EngineError, asked: &str) -> Option<Self> {
        let mut words = error.why.split(' ');
        match words.next()? {
            "MOVED" => {
                let slot = words.next()?.parse().ok().filter(|slot| *slot < SLOTS)?;
                Some(Self::Moved { slot, to: Address::parse(words.next()?, asked)? })
            }
            "ASK" => words.nth(1).and_then(|to| Address::parse(to, asked)).map(Self::Ask),
            "TRYAGAIN" => Some(Self::TryAgain),
            _ => None,
        }
    }
}

/// Whether an error only says that another node has the slot, or will have it.
pub(super) fn points_elsewhere(error: &EngineError) -> bool {
    Redirection::of(error, "").is_some()
}

/// Whether the keys of a name are on two nodes at the moment.
pub(super) fn is_try_again(error: &EngineError) -> bool {
    error.why.starts_with("TRYAGAIN")
}

/// One primary, what it has, and how many live replicas of it the node that was asked has heard of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Primary {
    pub(super) address: Address,
    /// First and last slot of each of its ranges, in order.
    pub(super) ranges: Vec<(u16, u16)>,
    pub(super) replicas: usize,
}

impl Primary {
    pub(super) fn first_slot(&self) -> u16 {
        self.ranges.first().map_or(SLOTS, |(first, _)| *first)
    }
}

/// Reads an answer to `CLUSTER SLOTS` of a node at `asked`: the primaries in order of their first slot.
pub(super) fn primaries(value: &Value, asked: &str) -> Result<Vec<Primary>, EngineError> {
    let Value::Array(ranges) = value else { return Err(answer::unexpected(value)) };
    let mut found: Vec<Primary> = Vec::new();
    for range in ranges {
        let Value::Array(parts) = range else { return Err(answer::unexpected(range)) };
        let [Value::Int(first), Value::Int(last), Value::Array(node), replicas @ ..] = parts.as_slice()
        else {
            return Err(answer::unexpected(range));
        };
        let number = |slot: &i64| u16::try_from(*slot).ok().filter(|slot| *slot < SLOTS);
        let (Some(first), Some(last)) = (number(first), number(last)) else {
            return Err(answer::unexpected(range));
        };
        if first > last {
            return Err(answer::unexpected(range));
        }
        let port = match node.get(1) {
            Some(Value::Int(port)) => u16::try_from(*port).ok(),
            _ => None,
        };
        let Some(port) = port.filter(|port| *port > 0) else { return Err(answer::unexpected(range)) };
        let address = Address::told(node.first().and_then(answer::text), port, asked);
        match found.iter_mut().find(|primary| primary.address == address) {
            Some(primary) => primary.ranges.push((first, last)),
            None => found.push(Primary { address, ranges: vec![(first, last)], replicas: replicas.len() }),
        }
    }
    for primary in &mut found {
        primary.ranges.sort_unstable();
    }
    found.sort_by_key(Primary::first_slot);
    Ok(found)
}

/// Fails if some slots have no primary, and says which.
pub(super) fn check_complete(primaries: &[Primary]) -> Result<(), EngineError> {
    let mut ranges: Vec<_> = primaries.iter().flat_map(|primary| primary.ranges.iter().copied()).collect();
    ranges.sort_unstable();
    let (mut next, mut missing) = (0, Vec::new());
    for (first, last) in ranges.into_iter().chain([(SLOTS, SLOTS)]) {
        match first.saturating_sub(next) {
            0 => {}
            1 => missing.push(next.to_string()),
            _ => missing.push(format!("{next}-{}", first - 1)),
        }
        next = next.max(last + 1);
    }
    if missing.is_empty() {
        return Ok(());
    }
    let more = if missing.len() > SHOWN { " and more" } else { "" };
    missing.truncate(SHOWN);
    let words = format!("the cluster has no primary for the slots {}{more}", missing.join(", "));
    Err(EngineError::new(Fault::Unreachable, words))
}

/// Ranges that an error lists.
const SHOWN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn error(why: &str) -> EngineError {
        EngineError::new(Fault::Unreachable, why)
    }

    fn address(host: &str, port: u16) -> Address {
        Address { host: host.into(), port }
    }

    #[test]
    fn keys_fall_where_the_server_says() {
        // Answers of CLUSTER KEYSLOT.
        for (key, expected) in
            [("", 0), ("123456789", 12739), ("foo", 12182), ("{foo}:bar", 12182), ("lock:x{}y", 6873)]
        {
            assert_eq!(slot(key), expected, "{key}");
        }
    }

    #[test]
    fn every_slot_has_a_tag_without_spaces() {
        for wanted in 0..SLOTS {
            let tag = tag_of(wanted);
            assert_eq!(slot(&format!("leasehold:wake:{{{tag}}}:1")), wanted, "{tag}");
            assert!(tag.len() <= 6 && tag.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{tag}");
        }
    }

    #[test]
    fn redirections_are_read_and_other_errors_are_not() {
        let of = |why: &str| Redirection::of(&error(why), "asked");
        assert_eq!(of("MOVED 3999 10.0.0.1:6381"), {
            Some(Redirection::Moved { slot: 3999, to: address("10.0.0.1", 6381) })
        });
        assert_eq!(of("MOVED 1 :6381"), Some(Redirection::Moved { slot: 1, to: address("asked", 6381) }));
        assert_eq!(of("ASK 3999 fe80::1:6381"), Some(Redirection::Ask(address("fe80::1", 6381))));
        assert_eq!(
            of("TRYAGAIN Multiple keys request during rehashing of slot"),
            Some(Redirection::TryAgain)
        );
        for other in
            ["MOVED 99999 h:1", "MOVED x h:1", "MOVED 1 h", "ASK 1", "CLUSTERDOWN The cluster is down", ""]
        {
            assert_eq!(of(other), None, "{other}");
        }
    }

    fn node(host: Value, port: i64) -> Value {
        Value::Array(vec![host, Value::Int(port), Value::SimpleString("id".into()), Value::Array(vec![])])
    }

    #[test]
    fn the_map_groups_ranges_by_primary() {
        let named = |host: &str| Value::BulkString(host.as_bytes().to_vec());
        let range = |first, last, nodes: Vec<Value>| {
            Value::Array([vec![Value::Int(first), Value::Int(last)], nodes].concat())
        };
        let value = Value::Array(vec![
            range(9000, 16383, vec![node(named("a"), 1), node(named("a"), 3)]),
            range(0, 10, vec![node(Value::Nil, 2)]),
            range(11, 8999, vec![node(named("a"), 1), node(named("a"), 3)]),
        ]);
        let found = primaries(&value, "asked").unwrap();
        assert_eq!(
            found,
            [
                Primary { address: address("asked", 2), ranges: vec![(0, 10)], replicas: 0 },
                Primary { address: address("a", 1), ranges: vec![(11, 8999), (9000, 16383)], replicas: 1 },
            ]
        );
        assert!(check_complete(&found).is_ok());
        for bad in [
            Value::Nil,
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![range(0, 99_999, vec![])]),
            Value::Array(vec![range(9, 8, vec![node(named("a"), 1)])]),
        ] {
            assert!(primaries(&bad, "asked").is_err());
        }
    }

    #[test]
    fn slots_without_a_primary_are_named() {
        let with = |ranges: &[(u16, u16)]| {
            check_complete(&[Primary { address: address("a", 1), ranges: ranges.to_vec(), replicas: 0 }])
        };
        let words = |ranges: &[(u16, u16)]| with(ranges).unwrap_err().why;
        assert!(with(&[(0, 16383)]).is_ok() && with(&[(0, 1), (2, 16383)]).is_ok());
        assert!(words(&[(1, 16382)]).ends_with("the slots 0, 16383"), "{}", words(&[(1, 16382)]));
        assert!(words(&[(0, 5)]).ends_with("6-16383"));
        assert!(check_complete(&[]).unwrap_err().why.ends_with("0-16383"));
        let holes: Vec<_> = (0..20).map(|at| (at * 2, at * 2)).collect();
        assert!(words(&holes).ends_with("15 and more"), "{}", words(&holes));
    }
}
