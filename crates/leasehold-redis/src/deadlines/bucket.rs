//! How the deadlines of a pool lie in Redis.

use std::fmt;

use redis::Cmd;

use crate::slots;
use leasehold_core::{
    engine::{
        EngineError, Fault,
        deadlines::{BUCKETS_MAX, Placement, Pool, PoolLayout},
    },
    name::Name,
};

/// The kinds of keys that a bucket has, in the order of the scripts that take all.
pub(super) const KEYS: [&str; 4] = ["due", "tries", "context", "dead"];

/// One bucket of a pool. All its keys have one hash tag: its own, or the pool's if all buckets are to be together.
#[derive(Clone, Copy)]
pub(super) struct Bucket<'a> {
    pub(super) pool: &'a Pool,
    pub(super) number: u16,
}

impl Bucket<'_> {
    pub(super) fn key(&self, kind: &str) -> String {
        format!("leasehold:{kind}:{self}")
    }

    /// The slot of a cluster that all its keys are in.
    pub(super) fn slot(&self) -> u16 {
        slots::slot(&self.to_string())
    }
}

/// What all its keys end with. A pool's name has no braces, so that no two buckets of any pools end alike.
impl fmt::Display for Bucket<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pool, number } = self;
        match pool.layout.placement {
            Placement::Spread => write!(f, "{{{}:{number}}}", pool.name),
            Placement::Together => write!(f, "{{{}}}:{number}", pool.name),
        }
    }
}

/// Writes the keys of a call, and before them how many there are.
pub(super) fn write_keys(buckets: &[Bucket<'_>], kinds: &[&str], cmd: &mut Cmd) {
    cmd.arg(buckets.len() * kinds.len());
    for bucket in buckets {
        for kind in kinds {
            cmd.arg(bucket.key(kind));
        }
    }
}

pub(super) fn check_name(pool: &Name) -> Result<(), EngineError> {
    if pool.as_str().contains(['{', '}']) {
        return Err(EngineError::new(Fault::Unsupported, "the name of a pool has no braces on this store"));
    }
    Ok(())
}

/// All buckets of a pool.
pub(super) fn all(pool: &Pool) -> Result<Vec<Bucket<'_>>, EngineError> {
    check_name(&pool.name)?;
    if !(1..=BUCKETS_MAX).contains(&pool.layout.buckets) {
        let words = format!("a pool has 1 to {BUCKETS_MAX} buckets");
        return Err(EngineError::new(Fault::Unsupported, words));
    }
    Ok((0..pool.layout.buckets).map(|number| Bucket { pool, number }).collect())
}

/// Where it is stored how a pool is laid out.
pub(super) fn layout_key(pool: &Name) -> String {
    format!("leasehold:deadlines:{{{pool}}}")
}

/// How a layout is written.
pub(super) fn write_layout(layout: PoolLayout) -> String {
    format!("1 {} {}", layout.buckets, layout.placement)
}

/// Reads the text of one; `None` if it is something else.
pub(super) fn read_layout(text: &str) -> Option<PoolLayout> {
    let (buckets, placement) = text.strip_prefix("1 ")?.split_once(' ')?;
    let placement = match placement {
        "spread" => Placement::Spread,
        "together" => Placement::Together,
        _ => return None,
    };
    Some(PoolLayout { buckets: buckets.parse().ok()?, placement })
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::name::hash_tag;

    fn pool(name: &str, placement: Placement) -> Pool {
        Pool { name: Name::new(name).unwrap(), layout: PoolLayout { buckets: 16, placement } }
    }

    #[test]
    fn all_keys_of_a_bucket_have_one_hash_tag() {
        for (placement, tag) in [(Placement::Spread, "pay:3"), (Placement::Together, "pay")] {
            let pool = pool("pay", placement);
            let bucket = Bucket { pool: &pool, number: 3 };
            assert!(KEYS.iter().all(|kind| hash_tag(&bucket.key(kind)) == Some(tag)));
            assert_eq!(bucket.slot(), slots::slot(&format!("{{{tag}}}")));
        }
        assert_eq!(all(&pool("{a}b", Placement::Spread)).err().map(|e| e.fault), Some(Fault::Unsupported));
    }

    #[test]
    fn no_two_buckets_share_a_key() {
        let mut keys = std::collections::HashSet::new();
        for name in ["pay", "pay:3", "pay:3:3"] {
            for placement in [Placement::Spread, Placement::Together] {
                for bucket in all(&pool(name, placement)).unwrap() {
                    assert!(keys.insert(bucket.key("due")), "{bucket}");
                }
            }
        }
    }

    #[test]
    fn a_layout_is_read_back_and_anything_else_is_not() {
        for placement in [Placement::Spread, Placement::Together] {
            let layout = PoolLayout { buckets: 16, placement };
            assert_eq!(read_layout(&write_layout(layout)), Some(layout));
        }
        for text in ["", "1", "2 16 spread", "1 16", "1 x spread", "1 16 apart", "1 16 spread more"] {
            assert_eq!(read_layout(text), None, "{text}");
        }
    }
}
