//! How operations are written, and when one must not leave any more.

use super::{
    super::{
        Scripts,
        entry::{entry, entry_parts},
    },
    *,
};
use leasehold_core::{clock::BootInstant, engine::Queue, name::Name, owner::Holder};

fn claim() -> Claim {
    Claim {
        name: Name::new("x").unwrap(),
        owner: Owner::new(5, &Holder::this_process("a label with spaces", 1)),
        ttl: Duration::from_secs(1),
        format: leasehold_core::engine::Format::Plain,
        lock_delay: Duration::ZERO,
        mode: leasehold_core::engine::Mode::Exclusive,
        queue: Some(Queue { wait: Duration::from_secs(2), poll_every: Duration::from_millis(333) }),
        acks: leasehold_core::engine::Acks::None,
    }
}

/// A batch of claims goes on when one of their callers is gone, and the end of that one may be ahead of it.
#[test]
fn a_claim_is_not_sent_again_with_the_text_of_its_script_after_its_end() {
    for has_ended in [false, true] {
        let (claim, attempts) = (claim(), Attempts::new(false, ""));
        let copy = attempts.leaves(claim.owner.id(), BootInstant::from_nanos(0)).unwrap();
        let owner = claim.owner.clone();
        let step = Step::Claim { claim, channel: Arc::default(), arrival: None, copy };
        let op = Op::new(Keys::new("", &Name::new("x").unwrap()), step);
        op.left(1);
        if has_ended {
            attempts.end(owner.id());
        }
        assert_eq!(op.leaves(), !has_ended);
        assert_eq!(attempts.may_come_late(owner.id(), 1), !has_ended);
        for call in [Call::ClaimFree, Call::Locks] {
            let cmd = Scripts::of(false, false).build(call, false, &[&op], 1, None);
            let text = String::from_utf8(cmd.get_packed_command()).unwrap();
            assert_eq!(text.contains(&format!("\r\n{}\r\n", u64::MAX)), has_ended, "{text}");
        }
        // Also after an end that goes key by key, over no link in particular.
        assert!([1, wake::NO_LINK].iter().all(|link| attempts.may_come_late(owner.id(), *link) != has_ended));
    }
}

#[test]
fn an_entry_leads_back_to_its_owner() {
    let claim = claim();
    let entry = |claim: &Claim| entry(claim, "leasehold:wake:1");
    let owner = claim.owner.expose();
    assert_eq!(entry(&claim), format!("2 1000 2000 999 leasehold:wake:1 {owner}"));
    let number = |n| NonZeroU32::new(n).unwrap();
    for mode in [Mode::Exclusive, Mode::Shared, Mode::Permits { take: number(2), of: number(5) }] {
        let claim = Claim { mode, ..claim.clone() };
        assert_eq!(entry_parts(&entry(&claim)), (mode, owner));
        assert_eq!(entry(&Claim { queue: None, ..claim.clone() }), "");
    }
}
