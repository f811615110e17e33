//! What operations on locks in Redisson's format send: see `scripts/redisson`.

use redis::{Cmd, RedisWrite, ToRedisArgs};

use super::{
    TOMBSTONE,
    op::{Form, Key, Op, Step, parts},
    px,
};
use leasehold_core::{
    engine::{Format, Held, Hold},
    owner::Owner,
};

impl Op {
    /// Whether it is about a lock in Redisson's format.
    pub(super) fn is_redisson(&self) -> bool {
        let format = match &self.step {
            Step::Claim { claim, .. } => claim.format,
            Step::Renew(hold) => hold.format,
            Step::End { format, .. } | Step::ForceRelease(_, format) => *format,
            _ => Format::Plain,
        };
        format == Format::Redisson
    }

    pub(super) fn redisson_form(&self, link: u64) -> Form {
        use Key::{G, K, N, T};
        match &self.step {
            Step::Renew(Hold { of: Held::Closed, .. }) => ("k", &[K, N]),
            Step::Renew(_) if self.alone => ("m", &[K]),
            Step::Renew(_) => ("n", &[K, N]),
            Step::End { .. } if self.alone => ("o", &[K]),
            Step::End { owner, attempts, .. } if attempts.may_come_late(owner.id(), link) => {
                ("t", &[K, N, G])
            }
            Step::End { .. } => ("r", &[K, N]),
            Step::ForceRelease(..) => ("f", &[K, N]),
            _ => ("c", &[K, T, N, G]),
        }
    }

    pub(super) fn write_redisson_args(&self, letter: &str, cmd: &mut Cmd) {
        let channel = || self.keys.redisson_channel();
        if let Some(owner) = self.owner() {
            cmd.arg(Field(owner));
        }
        match &self.step {
            Step::Claim { claim, .. } => {
                let (id, rest) = parts(&claim.owner);
                // As with other claims: the script refuses so long a lease.
                let px = if self.is_void() { u64::MAX } else { px(claim.ttl + claim.lock_delay) };
                cmd.arg(id).arg(rest).arg(px);
            }
            Step::Renew(Hold { owner, ttl, lock_delay, .. }) => {
                cmd.arg(px(*ttl + *lock_delay));
                if letter == "k" {
                    cmd.arg(parts(owner).0);
                }
            }
            Step::End { .. } => {
                cmd.arg(channel());
                if letter == "t" {
                    cmd.arg(px(TOMBSTONE));
                }
            }
            Step::ForceRelease(seen, _) => {
                cmd.arg(seen.get()).arg(channel());
            }
            _ => {}
        }
    }
}

/// An attempt as Redisson calls a holder: a UUID and a number, which is that of a thread there and of the process here. Each
/// attempt has its own, so that a claim that comes again is not counted again.
struct Field<'a>(&'a Owner);

impl ToRedisArgs for Field<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        out.write_arg(self.text().as_bytes());
    }
}

impl Field<'_> {
    fn text(&self) -> String {
        let (id, rest) = (self.0.id_text(), parts(self.0).1);
        let pid = rest.split(' ').nth(1).filter(|pid| !pid.is_empty()).unwrap_or("0");
        let part = |range| id.get(range).unwrap_or_default();
        format!("{}-{}-{}-{}-{}:{pid}", part(0..8), part(8..12), part(12..16), part(16..20), part(20..32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::owner::Holder;

    #[test]
    fn a_holder_is_called_as_redisson_calls_it() {
        let holder = Holder::Leasehold { host: "web1".into(), pid: 7, since_ms: 5, label: "a label".into() };
        let random = 0x0123_4567_89ab_cdef_0011_2233_4455_6677;
        let field = |holder| Field(&Owner::new(random, holder)).text();
        assert_eq!(field(&holder), "01234567-89ab-cdef-0011-223344556677:7");
        assert_eq!(field(&Holder::Foreign), "01234567-89ab-cdef-0011-223344556677:0");
    }
}
