//! How a cluster places names, and what it says about the place: pure.

use redis::Value;

use crate::{
    engine::{
        EngineError, Fault,
        crc16::{POLYNOMIAL, crc16},
        redis::{answer, url::Endpoint},
    },
    name::hash_tag,
};

/// How many parts a cluster's keys fall into.
pub(in super::super) const SLOTS: u16 = 16384;

/// The slot of a key: only its hash tag counts, if it has one.
pub(in super::super) fn slot(key: &str) -> u16 {
    slot_of_tag(hash_tag(key).unwrap_or(key))
}

/// The slot of all keys with this hash tag.
pub(in super::super) fn slot_of_tag(tag: &str) -> u16 {
    crc16(tag.as_bytes()) % SLOTS
}

/// A short text without spaces that falls into a slot: what is to lie beside names of that slot can have it as its tag.
pub(in super::super) fn tag_of(slot: u16) -> String {
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

/// One primary, what it has, and how many live replicas of it the node that was asked has heard of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Primary {
    pub(in super::super) endpoint: Endpoint,
    /// First and last slot of each of its ranges, in order.
    pub(in super::super) ranges: Vec<(u16, u16)>,
    pub(in super::super) replicas: usize,
}

impl Primary {
    pub(in super::super) fn first_slot(&self) -> u16 {
        self.ranges.first().map_or(SLOTS, |(first, _)| *first)
    }
}

/// Reads an answer to `CLUSTER SLOTS` of a node at `asked`: the primaries in order of their first slot.
pub(in super::super) fn primaries(value: &Value, asked: &str) -> Result<Vec<Primary>, EngineError> {
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
        let endpoint = Endpoint::reported(node.first().and_then(answer::text), port, asked);
        match found.iter_mut().find(|primary| primary.endpoint == endpoint) {
            Some(primary) => primary.ranges.push((first, last)),
            None => found.push(Primary { endpoint, ranges: vec![(first, last)], replicas: replicas.len() }),
        }
    }
    Ok(sorted(found))
}

/// Slots that have no primary: first and last of each range, in order.
fn holes(primaries: &[Primary]) -> Vec<(u16, u16)> {
    let mut ranges: Vec<_> = primaries.iter().flat_map(|primary| primary.ranges.iter().copied()).collect();
    ranges.sort_unstable();
    let (mut next, mut holes) = (0, Vec::new());
    for (first, last) in ranges.into_iter().chain([(SLOTS, SLOTS)]) {
        if first > next {
            holes.push((next, first - 1));
        }
        next = next.max(last + 1);
    }
    holes
}

/// How many slots have a primary.
pub(in super::super) fn coverage(primaries: &[Primary]) -> u16 {
    SLOTS - holes(primaries).iter().map(|(first, last)| last - first + 1).sum::<u16>()
}

/// A map with holes takes nothing away: slots that it gives to nobody stay with the primary that had them before.
pub(in super::super) fn keep_owned(mut found: Vec<Primary>, before: &[Primary]) -> Vec<Primary> {
    for (first, last) in holes(&found) {
        for former in before {
            let kept = former.ranges.iter().map(|(from, to)| (first.max(*from), last.min(*to)));
            let kept: Vec<_> = kept.filter(|(from, to)| from <= to).collect();
            if kept.is_empty() {
                continue;
            }
            match found.iter_mut().find(|primary| primary.endpoint == former.endpoint) {
                Some(primary) => primary.ranges.extend(kept),
                None => found.push(Primary { ranges: kept, ..former.clone() }),
            }
        }
    }
    sorted(found)
}

fn sorted(mut primaries: Vec<Primary>) -> Vec<Primary> {
    primaries.iter_mut().for_each(|primary| primary.ranges.sort_unstable());
    primaries.sort_by_key(Primary::first_slot);
    primaries
}

/// Fails if some slots have no primary, and says which.
pub(in super::super) fn check_complete(primaries: &[Primary]) -> Result<(), EngineError> {
    let holes = holes(primaries);
    if holes.is_empty() {
        return Ok(());
    }
    let shown = holes
        .iter()
        .take(SHOWN)
        .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") });
    let shown = shown.collect::<Vec<_>>().join(", ");
    let more = if holes.len() > SHOWN { " and more" } else { "" };
    let words = format!("the cluster has no primary for the slots {shown}{more}");
    Err(EngineError::new(Fault::Unreachable, words))
}

/// Ranges that an error lists.
const SHOWN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(host: &str, port: u16) -> Endpoint {
        Endpoint::new(host, port)
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
                Primary { endpoint: endpoint("asked", 2), ranges: vec![(0, 10)], replicas: 0 },
                Primary { endpoint: endpoint("a", 1), ranges: vec![(11, 8999), (9000, 16383)], replicas: 1 },
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
            check_complete(&[Primary { endpoint: endpoint("a", 1), ranges: ranges.to_vec(), replicas: 0 }])
        };
        let words = |ranges: &[(u16, u16)]| with(ranges).unwrap_err().why;
        assert!(with(&[(0, 16383)]).is_ok() && with(&[(0, 1), (2, 16383)]).is_ok());
        assert!(words(&[(1, 16382)]).ends_with("the slots 0, 16383"), "{}", words(&[(1, 16382)]));
        assert!(words(&[(0, 5)]).ends_with("6-16383"));
        assert!(check_complete(&[]).unwrap_err().why.ends_with("0-16383"));
        let holes: Vec<_> = (0..20).map(|at| (at * 2, at * 2)).collect();
        assert!(words(&holes).ends_with("15 and more"), "{}", words(&holes));
    }
    #[test]
    fn a_map_with_holes_takes_no_slot_from_its_primary() {
        let primary = |port, ranges: &[(u16, u16)]| Primary {
            endpoint: endpoint("a", port),
            ranges: ranges.to_vec(),
            replicas: 0,
        };
        let before = [primary(1, &[(0, 99)]), primary(2, &[(100, 16383)])];
        // The first primary is missing, and the second has got some of its slots.
        let kept = keep_owned(vec![primary(2, &[(50, 16383)])], &before);
        assert_eq!(kept, [primary(1, &[(0, 49)]), primary(2, &[(50, 16383)])]);
        let kept = keep_owned(vec![primary(1, &[(0, 99)]), primary(3, &[(200, 16383)])], &before);
        assert_eq!(kept[1], primary(2, &[(100, 199)]));
        assert!(check_complete(&kept).is_ok());
        assert_eq!(keep_owned(before.to_vec(), &[primary(9, &[(0, 16383)])]), before);
        assert_eq!(coverage(&[primary(1, &[(0, 9), (20, 29)])]), 20);
    }
}
