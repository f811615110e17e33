//! Every state that the votes of a quorum can reach: messages come late, in any order or never, keys vanish at any time,
//! and a node forgets everything. Nothing depends on time but how long a node that forgot is watched.
//!
//! Counting is the library's own. What is left out of the rules on purpose must show, or the search proves nothing.
//!
//! What keeps the search small leaves nothing out. Nodes are alike, so their order does not matter. A message that would
//! be refused stays on its way, from where it can do the same and more. A release, a withdrawal or the end of a ttl is a
//! key that vanishes, just before the next message that this makes a difference to. An attempt begins with its first
//! vote: one that begins earlier is promised less. And all of them may be under way at once.
#![expect(clippy::print_stdout, reason = "says how much was searched")]

mod node;
mod search;
mod state;

use search::search;

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// A fence is confirmed although somebody else holds by now.
    ConfirmsForAnybody,
    /// A fence is confirmed although the node has given a higher one.
    ConfirmsBelowItsFence,
    /// Different votes are not confirmed at all.
    NoSecondPhase,
    /// A node that forgot votes at once.
    NoAbstention,
    /// A node that forgot learns the others' fences when its watch begins.
    LearnsAtTheStart,
    /// A lost hold is put back below the node's fence.
    RepairsBelowItsFence,
    /// A withdrawal leaves no tombstone although a repair is on its way.
    NoTombstone,
    /// A reader's fence need not be above those of other readers.
    ReadersPassReaders,
    /// A writer's fence need not be above those of readers.
    WritersPassReaders,
}

/// How much is searched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    pub(crate) attempts: usize,
    /// Fences that an attempt may ask for.
    pub(crate) hints: &'static [u8],
    /// How often a node forgets everything.
    pub(crate) forgets: u8,
    /// How often the keeper renews. If it does, it holds two of the nodes at the start.
    pub(crate) renewals: u8,
    /// Which attempts read, a bit for each; the others write. The first attempt is the keeper, and begins first.
    pub(crate) readers: u8,
}

/// Attempts, the fences they ask for, how often a node forgets and how often a lease is renewed.
const fn scope(attempts: usize, hints: &'static [u8], forgets: u8, renewals: u8) -> Scope {
    Scope { attempts, hints, forgets, renewals, readers: 0 }
}

/// The same with some attempts that read.
const fn sharing(readers: u8, scope: Scope) -> Scope {
    Scope { readers, ..scope }
}

const SCOPES: [Scope; 4] =
    [scope(3, &[0], 0, 0), scope(2, &[0, 2], 1, 0), scope(2, &[0, 2], 0, 2), scope(3, &[0], 0, 1)];
/// For those who have minutes and an optimised build.
const DEEP: [Scope; 3] = [scope(3, &[0, 2], 0, 0), scope(3, &[0], 1, 0), scope(3, &[0, 1, 3], 0, 1)];

#[test]
fn fences_are_unique_and_grow_in_every_state() {
    let deep = if std::env::var_os("LEASEHOLD_DEEP").is_some() { &DEEP[..] } else { &[] };
    for scope in SCOPES.iter().chain(deep) {
        match search(scope, None) {
            Ok(states) => println!("{states} states of {scope:?}"),
            Err(broken) => panic!("{scope:?}: {broken}"),
        }
    }
}

/// All ways to read and to write, whoever begins first; of three attempts those in which two read.
#[test]
fn readers_and_writers_have_fences_in_order_in_every_state() {
    let deep = std::env::var_os("LEASEHOLD_DEEP").is_some();
    let of_two = [scope(2, &[0, 2], 1, 0), scope(2, &[0, 2], 0, 2)];
    let mut scopes: Vec<_> = (1..4).flat_map(|readers| of_two.map(|scope| sharing(readers, scope))).collect();
    scopes.extend([0b011, 0b101, 0b110].map(|readers| sharing(readers, scope(3, &[0], 0, 0))));
    if deep {
        scopes.extend((1..8).map(|readers| sharing(readers, scope(3, &[0], 0, 1))));
    }
    for scope in scopes {
        match search(&scope, None) {
            Ok(states) => println!("{states} states of {scope:?}"),
            Err(broken) => panic!("{scope:?}: {broken}"),
        }
    }
}

#[test]
fn a_rule_that_is_left_out_breaks_a_promise() {
    let cases = [
        (Flaw::ConfirmsForAnybody, scope(2, &[0, 2], 0, 0), "granted twice"),
        (Flaw::ConfirmsBelowItsFence, scope(2, &[0, 2], 0, 0), "granted twice"),
        (Flaw::NoSecondPhase, scope(2, &[0, 2], 0, 0), "granted twice"),
        (Flaw::NoAbstention, scope(2, &[0, 2], 1, 0), "not above"),
        (Flaw::LearnsAtTheStart, scope(2, &[0, 2], 1, 0), "not above"),
        (Flaw::RepairsBelowItsFence, scope(2, &[0, 2], 0, 2), "renewed although"),
        (Flaw::NoTombstone, scope(1, &[0], 0, 1), "after its end"),
        (Flaw::ReadersPassReaders, sharing(0b11, scope(2, &[0], 0, 0)), "not above"),
        (Flaw::WritersPassReaders, sharing(0b01, scope(2, &[0], 0, 0)), "not above"),
        (Flaw::NoSecondPhase, sharing(0b01, scope(2, &[0, 2], 0, 0)), "granted twice"),
        (Flaw::NoAbstention, sharing(0b10, scope(2, &[0, 2], 1, 0)), "not above"),
        (Flaw::RepairsBelowItsFence, sharing(0b01, scope(2, &[0, 2], 0, 2)), "renewed although"),
        (Flaw::NoTombstone, sharing(0b01, scope(1, &[0], 0, 1)), "after its end"),
    ];
    for (flaw, scope, promise) in cases {
        let broken = search(&scope, Some(flaw)).err();
        let broken = broken.unwrap_or_else(|| panic!("{flaw:?} goes unnoticed in {scope:?}"));
        assert!(broken.promise.contains(promise), "{flaw:?}: {broken}");
        println!("{flaw:?}: {broken}");
    }
}
