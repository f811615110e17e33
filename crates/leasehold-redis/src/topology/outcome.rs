//! What is done about an error: one table for all that is sent.
//!
//! Nothing is sent again that may have had an effect. A redirection, a script that the server does not know, and a server
//! that could not be reached or takes no writes mean that nothing happened.

use super::slots::SLOTS;
use crate::url::Endpoint;
use leasehold_core::engine::{EngineError, Fault};

/// What may be done with a call that had no effect, besides giving it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resend {
    /// It can wait until all keys of its name are on one node.
    AwaitMigration,
    /// While its keys are on two nodes it fails: who holds a lock cannot wait.
    NotWhileMigrating,
}

/// What comes after an error.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The error is the result.
    Fail,
    /// The same, and the map may be out of date: whether the call had an effect is not known.
    FailAndReadMap,
    /// Read the map again, and go where the slot is now, if that is another server.
    ReadMap,
    /// The slot belongs to this server.
    Moved { slot: u16, to: Endpoint },
    /// The slot is on its way to this server, and the name has arrived there.
    Ask(Endpoint),
    /// The slot is on its way, and the keys of the name are on both servers.
    Wait,
}

/// What comes after an error of the server at `host`.
///
/// | error | effect | next |
/// |---|---|---|
/// | MOVED | none | the server it names; the map is read again |
/// | ASK | none | the server it names, once, with ASKING |
/// | TRYAGAIN | none | the same server a little later, or failure: see [`Resend`] |
/// | CLUSTERDOWN, LOADING, a slot without a primary | none | the map is read again |
/// | READONLY | none | the link is dropped ([`is_wrong_server`]), then as unreachable |
/// | unreachable: not sent | none | the map is read again |
/// | NOSCRIPT | none | the same link, with the script's text ([`is_unknown_script`]) |
/// | sent and not answered | unknown | failure |
/// | any other refusal | none | failure |
pub(super) fn next(error: &EngineError, host: &str, resend: Resend) -> Next {
    let mut words = error.why.split(' ');
    let redirection = match words.next().unwrap_or_default() {
        "MOVED" => words.next().zip(words.next()).and_then(|(slot, to)| {
            let slot = slot.parse().ok().filter(|slot| *slot < SLOTS)?;
            Some(Next::Moved { slot, to: Endpoint::parse(to, host)? })
        }),
        "ASK" => words.nth(1).and_then(|to| Endpoint::parse(to, host)).map(Next::Ask),
        "TRYAGAIN" if resend == Resend::AwaitMigration => Some(Next::Wait),
        "TRYAGAIN" => Some(Next::Fail),
        _ => None,
    };
    redirection.unwrap_or(match error.fault {
        Fault::Unreachable => Next::ReadMap,
        Fault::NoAnswer => Next::FailAndReadMap,
        _ => Next::Fail,
    })
}

/// Whether an error only says that another node has the slot, or will have it.
pub(crate) fn is_redirection(error: &EngineError) -> bool {
    ["MOVED ", "ASK ", "TRYAGAIN"].iter().any(|code| error.why.starts_with(code))
}

/// Whether the keys of a name are on two nodes at the moment.
pub(crate) fn is_try_again(error: &EngineError) -> bool {
    error.why.starts_with("TRYAGAIN")
}

/// Whether the server does not know a script by its hash (any more).
pub(crate) fn is_unknown_script(error: &EngineError) -> bool {
    error.why.starts_with("NOSCRIPT")
}

/// Whether the server takes no writes, or has other data than when it was dialled.
pub(crate) fn is_wrong_server(error: &EngineError) -> bool {
    ["READONLY ", "ERA "].iter().any(|code| error.why.starts_with(code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::error::Refusal;

    fn after(fault: Fault, why: &str) -> [Next; 2] {
        let error = EngineError::new(fault, why);
        [Resend::AwaitMigration, Resend::NotWhileMigrating].map(|resend| next(&error, "asked", resend))
    }

    fn at(host: &str, port: u16) -> Endpoint {
        Endpoint::new(host, port)
    }

    #[test]
    fn a_redirection_is_followed() {
        let moved = |slot, to| [(); 2].map(|()| Next::Moved { slot, to: Endpoint::clone(&to) });
        let refused = Fault::Refused(Refusal::Other);
        assert_eq!(after(refused, "MOVED 3999 10.0.0.1:6381"), moved(3999, at("10.0.0.1", 6381)));
        assert_eq!(after(refused, "MOVED 1 :6381"), moved(1, at("asked", 6381)));
        assert_eq!(after(refused, "ASK 3999 fe80::1:6381")[0], Next::Ask(at("fe80::1", 6381)));
    }

    #[test]
    fn only_what_can_wait_is_sent_again_while_its_keys_are_on_two_nodes() {
        let words = "TRYAGAIN Multiple keys request during rehashing of slot";
        assert_eq!(after(Fault::Unreachable, words), [Next::Wait, Next::Fail]);
    }

    #[test]
    fn what_did_not_happen_is_looked_for_elsewhere() {
        for why in ["CLUSTERDOWN The cluster is down", "READONLY You can't write", "no connection in time"] {
            assert_eq!(after(Fault::Unreachable, why)[0], Next::ReadMap, "{why}");
        }
    }

    #[test]
    fn what_may_have_happened_or_was_refused_is_not_sent_again() {
        assert_eq!(after(Fault::NoAnswer, "no answer in time")[0], Next::FailAndReadMap);
        for why in ["OOM command not allowed", "MOVED 99999 h:1", "MOVED x h:1", "MOVED 1 h", "ASK 1", ""] {
            assert_eq!(after(Fault::Refused(Refusal::Other), why)[0], Next::Fail, "{why}");
        }
    }
}
