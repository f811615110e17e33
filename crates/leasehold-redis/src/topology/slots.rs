//! How a cluster places names (pure).

use redis::Value;

use crate::{Result, info::number, reply, unreachable, url::Endpoint};
use leasehold_core::{
    engine::crc16::{POLYNOMIAL, crc16},
    name::hash_tag,
};

/// How many parts a cluster's keys fall into.
pub(crate) const SLOTS: u16 = 16384;

/// The slot of a key: only its hash tag counts, if it has one.
pub(crate) fn slot(key: &str) -> u16 {
    slot_of_tag(hash_tag(key).unwrap_or(key))
}

/// The slot of all keys with this hash tag.
pub(crate) fn slot_of_tag(tag: &str) -> u16 {
    crc16(tag.as_bytes()) % SLOTS
}

/// A short text without spaces that falls into a slot: what is to lie beside names of that slot can have it as its tag.
pub(crate) fn tag_of(slot: u16) -> String {
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

/// Which primary has which slot, at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlotMap {
    primaries: Vec<Endpoint>,
    /// The position of each slot's primary among them.
    of_slot: Vec<Option<u16>>,
}

impl SlotMap {
    pub(crate) fn empty() -> Self {
        Self { primaries: Vec::new(), of_slot: vec![None; usize::from(SLOTS)] }
    }

    /// A server that has all names.
    pub(super) fn of_one(server: &Endpoint) -> Self {
        Self { primaries: vec![server.clone()], of_slot: vec![Some(0); usize::from(SLOTS)] }
    }

    /// Reads an answer to `CLUSTER SLOTS` of a node at `asked`.
    pub(super) fn parse(value: &Value, asked: &str) -> Result<Self> {
        let range = |range: &Value| {
            let Value::Array(parts) = range else { return None };
            let [first, last, Value::Array(node), ..] = parts.as_slice() else { return None };
            let (first, last) = (number(first)?, number(last).filter(|last| *last < SLOTS)?);
            let port = number(node.get(1)?).filter(|port| *port > 0 && first <= last)?;
            Some(((first, last), Endpoint::reported(reply::text(&node[0]), port, asked)))
        };
        let Value::Array(ranges) = value else { return Err(reply::unexpected(value)) };
        let mut map = Self::empty();
        for value in ranges {
            let (slots, primary) = range(value).ok_or_else(|| reply::unexpected(value))?;
            map.give(slots, &primary);
        }
        Ok(map)
    }

    /// Gives the slots from the first to the last to a primary.
    pub(crate) fn give(&mut self, (first, last): (u16, u16), to: &Endpoint) {
        let at = self.primaries.iter().position(|known| known == to).unwrap_or_else(|| {
            self.primaries.push(to.clone());
            self.primaries.len() - 1
        });
        self.of_slot[usize::from(first)..=usize::from(last)].fill(u16::try_from(at).ok());
    }

    /// A map with holes takes nothing away: slots without a primary stay with the primary that had them before.
    pub(super) fn keep_owned(&mut self, before: &Self) {
        for slot in 0..SLOTS {
            if let (None, Some(former)) = (self.position(slot), before.primary(slot)) {
                self.give((slot, slot), former);
            }
        }
    }

    /// The number of a slot's primary.
    pub(super) fn position(&self, slot: u16) -> Option<u16> {
        self.of_slot[usize::from(slot)]
    }

    pub(super) fn primary(&self, slot: u16) -> Option<&Endpoint> {
        self.position(slot).map(|at| &self.primaries[usize::from(at)])
    }

    /// The primaries that have slots, and the first slot of each, in order.
    pub(super) fn by_first_slot(&self) -> Vec<(u16, &Endpoint)> {
        let mut found: Vec<_> = (0..SLOTS).filter_map(|slot| Some((self.position(slot)?, slot))).collect();
        found.sort_unstable();
        found.dedup_by_key(|(at, _)| *at);
        found.sort_unstable_by_key(|(_, slot)| *slot);
        found.into_iter().map(|(at, slot)| (slot, &self.primaries[usize::from(at)])).collect()
    }

    pub(super) fn has(&self, primary: &Endpoint) -> bool {
        self.primaries.contains(primary)
    }

    /// How many slots have a primary.
    pub(super) fn coverage(&self) -> usize {
        self.of_slot.iter().flatten().count()
    }

    /// Fails if some slots have no primary, and names them.
    pub(crate) fn check_complete(&self) -> Result<()> {
        let missing: Vec<_> = (0..SLOTS).filter(|slot| self.position(*slot).is_none()).collect();
        let holes = missing.chunk_by(|slot, next| slot + 1 == *next).map(|hole| match hole {
            [first, .., last] => format!("{first}-{last}"),
            one => one[0].to_string(),
        });
        let mut holes: Vec<_> = holes.take(HOLES_SHOWN + 1).collect();
        let more = if holes.len() > HOLES_SHOWN { " and more" } else { "" };
        holes.truncate(HOLES_SHOWN);
        let words = format!("the cluster has no primary for the slots {}{more}", holes.join(", "));
        if missing.is_empty() { Ok(()) } else { Err(unreachable(words)) }
    }
}

/// Ranges that an error lists.
const HOLES_SHOWN: usize = 8;

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

    fn map(ranges: &[(u16, u16, &str, u16)]) -> SlotMap {
        let mut map = SlotMap::empty();
        ranges.iter().for_each(|(first, last, host, port)| map.give((*first, *last), &endpoint(host, *port)));
        map
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
        let found = SlotMap::parse(&value, "asked").unwrap();
        assert_eq!(found.by_first_slot(), [(0, &endpoint("asked", 2)), (11, &endpoint("a", 1))]);
        assert_eq!(found, map(&[(9000, 16383, "a", 1), (0, 10, "asked", 2), (11, 8999, "a", 1)]));
        assert!(found.check_complete().is_ok());
        for bad in [
            Value::Nil,
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![range(0, 99_999, vec![])]),
            Value::Array(vec![range(0, 65_541, vec![node(named("a"), 1)])]),
            Value::Array(vec![range(9, 8, vec![node(named("a"), 1)])]),
        ] {
            assert!(SlotMap::parse(&bad, "asked").is_err());
        }
    }

    #[test]
    fn slots_without_a_primary_are_named() {
        let with = |ranges: &[(u16, u16)]| {
            let ranges: Vec<_> = ranges.iter().map(|(first, last)| (*first, *last, "a", 1)).collect();
            map(&ranges).check_complete()
        };
        let words = |ranges: &[(u16, u16)]| with(ranges).unwrap_err().why;
        assert!(with(&[(0, 16383)]).is_ok() && with(&[(0, 1), (2, 16383)]).is_ok());
        assert!(words(&[(1, 16382)]).ends_with("the slots 0, 16383"), "{}", words(&[(1, 16382)]));
        assert!(words(&[(0, 5)]).ends_with("6-16383"));
        assert!(words(&[]).ends_with("0-16383"));
        let holes: Vec<_> = (0..20).map(|at| (at * 2, at * 2)).collect();
        assert!(words(&holes).ends_with("15 and more"), "{}", words(&holes));
    }

    #[test]
    fn a_map_with_holes_takes_no_slot_from_its_primary() {
        let before = map(&[(0, 99, "a", 1), (100, 16383, "a", 2)]);
        let kept = |found: &[(u16, u16, &str, u16)]| {
            let mut found = map(found);
            found.keep_owned(&before);
            found
        };
        // The first primary is missing, and the second has got some of its slots.
        let found = kept(&[(50, 16383, "a", 2)]);
        assert_eq!(found.by_first_slot(), [(0, &endpoint("a", 1)), (50, &endpoint("a", 2))]);
        let found = kept(&[(0, 99, "a", 1), (200, 16383, "a", 3)]);
        assert_eq!(found.by_first_slot()[1..], [(100, &endpoint("a", 2)), (200, &endpoint("a", 3))]);
        assert!(found.check_complete().is_ok());
        assert_eq!(kept(&[(0, 16383, "a", 9)]), map(&[(0, 16383, "a", 9)]));
        assert_eq!(map(&[(0, 9, "a", 1), (20, 29, "a", 1)]).coverage(), 20);
    }
}
