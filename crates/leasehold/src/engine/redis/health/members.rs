//! The nodes of a cluster, as one of them tells: pure.

use redis::Value;

use crate::engine::redis::{answer, slots::SLOTS, url::Endpoint};

/// A node in the eyes of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) id: String,
    pub(super) address: Endpoint,
    /// The id of the primary that it follows.
    pub(super) follows: Option<String>,
    /// The cluster agreed that it is dead.
    pub(super) has_failed: bool,
    /// How many slots it has.
    pub(super) slots: u32,
}

/// Reads answers to `CLUSTER NODES` and `CLUSTER SLOTS` of a node at `asked`. The second knows where clients shall
/// connect, but does not list all nodes.
pub(super) fn members(nodes: &str, slots: &Value, asked: &str) -> Vec<Member> {
    let endpoints = endpoints(slots, asked);
    let mut found: Vec<_> = nodes.lines().filter_map(|line| member(line, &endpoints, asked)).collect();
    found.sort_by(|one, other| one.address.cmp(&other.address));
    found
}

/// `ID HOST:PORT@BUS[,NAME] FLAGS PRIMARY PING PONG EPOCH LINK SLOT…`
fn member(line: &str, endpoints: &[(String, Endpoint)], asked: &str) -> Option<Member> {
    let mut words = line.split(' ');
    let id = words.next()?.to_owned();
    let (address, _) = words.next()?.split_once('@')?;
    let address = match endpoints.iter().find(|(known, _)| *known == id) {
        Some((_, address)) => address.clone(),
        None => Endpoint::parse(address, asked)?,
    };
    let flags: Vec<_> = words.next()?.split(',').collect();
    // One that was never reached is nobody yet.
    if address.port == 0 || flags.contains(&"handshake") || flags.contains(&"noaddr") {
        return None;
    }
    let follows = words.next().filter(|id| *id != "-").map(str::to_owned);
    let slots = words.skip(4).filter_map(count).sum();
    Some(Member { id, address, follows, has_failed: flags.contains(&"fail"), slots })
}

/// `7`, or `0-5460`; a slot that is being moved is listed once more in brackets.
fn count(word: &str) -> Option<u32> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    let slot = |text: &str| text.parse::<u16>().ok().filter(|slot| *slot < SLOTS).map(u32::from);
    (slot(last)? + 1).checked_sub(slot(first)?)
}

/// Ids of nodes, and where clients reach them.
fn endpoints(slots: &Value, asked: &str) -> Vec<(String, Endpoint)> {
    let Value::Array(ranges) = slots else { return Vec::new() };
    let nodes = ranges.iter().flat_map(|range| match range {
        Value::Array(parts) => parts.get(2..).unwrap_or_default(),
        _ => &[],
    });
    nodes.filter_map(|node| endpoint(node, asked)).collect()
}

fn endpoint(node: &Value, asked: &str) -> Option<(String, Endpoint)> {
    let Value::Array(parts) = node else { return None };
    let [host, Value::Int(port), id, ..] = parts.as_slice() else { return None };
    let port = u16::try_from(*port).ok().filter(|port| *port > 0)?;
    Some((answer::text(id)?.to_owned(), Endpoint::reported(answer::text(host), port, asked)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_read_with_what_they_follow_and_where_clients_reach_them() {
        let text = "\
            bb 10.0.0.2:7001@17001 slave aa 0 1 1 connected\n\
            aa 10.0.0.1:7000@17000,name myself,master - 0 1 1 connected 0-5460 9000 [77->-cc]\n\
            cc :7002@17002 master,fail - 0 1 2 disconnected\n\
            dd 10.0.0.4:7003@17003 master,fail? - 0 1 2 disconnected 9001\n\
            ee :0@0 master,noaddr - 0 1 2 disconnected\n\
            ff 10.0.0.6:7005@17005 handshake - 0 0 0 disconnected\n\
            rubbish\n";
        let text_of = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let node =
            |host: &str, port, id: &str| Value::Array(vec![text_of(host), Value::Int(port), text_of(id)]);
        let range =
            vec![Value::Int(0), Value::Int(5460), node("a.example", 7000, "aa"), node("", 7001, "bb")];
        let found = members(text, &Value::Array(vec![Value::Array(range)]), "asked");
        let shown: Vec<_> = found
            .iter()
            .map(|member| {
                let Member { id, address, follows, has_failed, slots } = member;
                format!("{id} {address} {} {has_failed} {slots}", follows.as_deref().unwrap_or("-"))
            })
            .collect();
        assert_eq!(
            shown,
            [
                "dd 10.0.0.4:7003 - false 1",
                "aa a.example:7000 - false 5462",
                "bb asked:7001 aa false 0",
                "cc asked:7002 - true 0",
            ]
        );
    }
}
