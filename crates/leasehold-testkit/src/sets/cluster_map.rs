//! The view that one node of a cluster has of all of them.

use std::ops::RangeInclusive;

/// How far the port for other nodes is above the one for clients.
const BUS_OFFSET: u16 = 10_000;

/// All nodes, by port; two nodes agree when their maps are equal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClusterMap {
    members: Vec<Member>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Member {
    port: u16,
    id: String,
    is_primary: bool,
    /// Marked as failed, or still in handshake.
    is_doubtful: bool,
    follows: Option<String>,
    slots: Vec<RangeInclusive<u16>>,
}

impl ClusterMap {
    /// Parses the reply to `CLUSTER NODES`; `None` while it names a node without an address.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut members: Vec<_> = text.lines().map(Member::parse).collect::<Option<_>>()?;
        members.sort_by_key(|member| member.port);
        Some(Self { members })
    }

    pub(super) fn owner_of(&self, slot: u16) -> Option<u16> {
        let owns = |member: &&Member| member.slots.iter().any(|range| range.contains(&slot));
        self.members.iter().find(owns).map(|member| member.port)
    }

    /// The nodes that own slots.
    pub(super) fn primaries(&self) -> impl Iterator<Item = u16> {
        self.members.iter().filter(|member| !member.slots.is_empty()).map(|member| member.port)
    }

    pub(super) fn is_primary(&self, port: u16) -> bool {
        self.members.iter().any(|member| member.port == port && member.is_primary)
    }

    /// The replicas of the node with this port that are not marked as failed.
    pub(super) fn replicas_of(&self, port: u16) -> impl Iterator<Item = u16> {
        let id = self.members.iter().find(|member| member.port == port).map(|member| member.id.as_str());
        let follows = move |member: &&Member| id.is_some() && member.follows.as_deref() == id;
        self.members.iter().filter(follows).filter(|member| !member.is_doubtful).map(|member| member.port)
    }

    /// Whether it knows all nodes with these ports and marks none as failed.
    pub(super) fn trusts_all(&self, mut ports: impl Iterator<Item = u16>) -> bool {
        ports.all(|port| self.members.iter().any(|member| member.port == port && !member.is_doubtful))
    }
}

impl Member {
    /// `ID HOST:PORT@BUS[,NAME] FLAGS PRIMARY PING PONG EPOCH LINK SLOT…`
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let id = words.next()?.to_owned();
        // Later servers report the port for the kind of connection that asks, which is 0 beside TLS.
        let (_, bus) = words.next()?.split_once('@')?;
        let bus: u16 = bus.split(',').next()?.parse().ok()?;
        let flags: Vec<&str> = words.next()?.split(',').collect();
        let follows = words.next().filter(|id| *id != "-").map(str::to_owned);
        Some(Self {
            port: bus.checked_sub(BUS_OFFSET)?,
            id,
            is_primary: flags.contains(&"master"),
            is_doubtful: flags.iter().any(|flag| ["fail", "fail?", "handshake", "noaddr"].contains(flag)),
            follows,
            slots: words.skip(4).filter_map(range).collect(),
        })
    }
}

/// `7`, or `0-5460`; a slot that is being moved is listed once more in brackets.
fn range(word: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: &str = "\
bb 127.0.0.1:7001@17001 slave aa 0 1 1 connected
aa 127.0.0.1:7000@17000,name myself,master - 0 1 1 connected 0-5460 9000 [77->-cc]
cc 127.0.0.1:7002@17002 master,fail - 0 1 2 disconnected
";

    #[test]
    fn nodes_slots_and_replicas_are_read() {
        let map = ClusterMap::parse(NODES).unwrap();
        assert_eq!(map.owner_of(5460), Some(7000));
        assert_eq!(map.owner_of(9000), Some(7000));
        assert_eq!(map.owner_of(5461), None);
        assert_eq!(map.primaries().collect::<Vec<_>>(), [7000]);
        assert_eq!(map.replicas_of(7000).collect::<Vec<_>>(), [7001]);
        assert!(map.is_primary(7000) && !map.is_primary(7001));
        assert!(map.trusts_all([7000, 7001].into_iter()));
        assert!(!map.trusts_all([7002].into_iter()));
        assert!(!map.trusts_all([7003].into_iter()));
    }
}
