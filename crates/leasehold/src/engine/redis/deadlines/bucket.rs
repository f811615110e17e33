//! How the deadlines of a pool lie in Redis.

use std::{fmt, sync::LazyLock};

use redis::Cmd;

use crate::{
    engine::{
        EngineError, Fault,
        deadlines::{BUCKETS_MAX, Placement, Pool, PoolLayout},
        redis::{
            script::{self, Script},
            slots,
        },
    },
    name::Name,
};

/// One of the keys of a bucket.
#[derive(Clone, Copy)]
pub(super) enum BucketKey {
    Due,
    Tries,
    Context,
    Dead,
}

/// All of them, in the order of the scripts that take all.
pub(super) const ALL: [BucketKey; 4] =
    [BucketKey::Due, BucketKey::Tries, BucketKey::Context, BucketKey::Dead];

/// One bucket of a pool. All its keys have one hash tag: its own, or the pool's if all buckets are to be together.
#[derive(Clone, Copy)]
pub(super) struct Bucket<'a> {
    pub(super) pool: &'a Pool,
    pub(super) number: u16,
}

impl Bucket<'_> {
    pub(super) fn key(&self, which: BucketKey) -> String {
        let word = match which {
            BucketKey::Due => "due",
            BucketKey::Tries => "tries",
            BucketKey::Context => "context",
            BucketKey::Dead => "dead",
        };
        format!("leasehold:{word}:{self}")
    }

    /// The slot of a cluster that all its keys are in.
    pub(super) fn slot(&self) -> u16 {
        let Self { pool, number } = self;
        match pool.layout.placement {
            Placement::Spread => slots::slot_of_tag(&format!("{}:{number}", pool.name)),
            Placement::Together => slots::slot_of_tag(pool.name.as_str()),
        }
    }
}

/// What the names of a pool's buckets are before and after their number.
pub(super) fn around_number(pool: &Pool) -> (String, &'static str) {
    match pool.layout.placement {
        Placement::Spread => (format!("{{{}:", pool.name), "}"),
        Placement::Together => (format!("{{{}}}:", pool.name), ""),
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

/// What exists while nothing of the pool is due. Only who reaches all buckets by one call has a use for it.
pub(super) fn quiet_key(pool: &Pool) -> String {
    format!("leasehold:quiet:{{{}}}", pool.name)
}

/// How a layout is written.
pub(super) fn write_layout(layout: PoolLayout) -> String {
    format!("1 {} {}", layout.buckets, layout.placement)
}

/// Reads the text of one; `None` if it is something else.
pub(super) fn read_layout(text: &str) -> Option<PoolLayout> {
    let mut words = text.split(' ');
    let (Some("1"), Some(buckets), Some(placement), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return None;
    };
    let placement = match placement {
        "spread" => Placement::Spread,
        "together" => Placement::Together,
        _ => return None,
    };
    Some(PoolLayout { buckets: buckets.parse().ok()?, placement })
}

macro_rules! scripts {
    ($($name:ident: $($file:literal)+;)+) => {
        $(pub(super) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(concat!(
                include_str!("../scripts/deadlines/begin.lua"),
                $(include_str!(concat!("../scripts/deadlines/", $file)),)+
            ))
        });)+
    };
}

scripts! {
    LAYOUT: "layout.lua";
    SET: "quiet.lua" "set.lua";
    SETTLE: "quiet.lua" "settle.lua";
    CANCEL: "cancel.lua";
    PEEK: "peek.lua";
    STATS: "stats.lua";
    DEAD: "dead.lua";
}

macro_rules! claim {
    ($file:literal) => {
        LazyLock::new(|| {
            Script::new(concat!(
                include_str!(concat!("../scripts/deadlines/", $file)),
                include_str!("../scripts/deadlines/claim.lua")
            ))
        })
    };
}

/// Those that run all the time bring along nothing that they do not need.
pub(super) static CLAIM_ALL: LazyLock<Script> = claim!("claim_all.lua");
pub(super) static CLAIM_ONE: LazyLock<Script> = claim!("claim_one.lua");

/// About the size of a key or an argument.
const ARG_BYTES: usize = 40;

/// The keys of a call.
#[derive(Clone, Copy)]
pub(super) struct ScriptKeys<'a> {
    pub(super) buckets: &'a [Bucket<'a>],
    pub(super) of_each: &'a [BucketKey],
    /// The pool's quiet, after those of the buckets.
    pub(super) quiet: Option<&'a str>,
}

/// The begin of a call; `arguments` is about how many follow.
pub(super) fn call(script: &Script, by_hash: bool, keys: ScriptKeys<'_>, arguments: usize) -> Cmd {
    let ScriptKeys { buckets, of_each, quiet } = keys;
    let count = buckets.len() * of_each.len() + usize::from(quiet.is_some());
    let mut cmd = script::begin(script, by_hash, (count + arguments) * ARG_BYTES);
    cmd.arg(count);
    for bucket in buckets {
        for which in of_each {
            cmd.arg(bucket.key(*which));
        }
    }
    if let Some(quiet) = quiet {
        cmd.arg(quiet);
    }
    cmd
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::hash_tag;

    fn pool(name: &str, placement: Placement) -> Pool {
        Pool { name: Name::new(name).unwrap(), layout: PoolLayout { buckets: 16, placement } }
    }

    #[test]
    fn all_keys_of_a_bucket_have_one_hash_tag() {
        for (placement, tag) in [(Placement::Spread, "pay:3"), (Placement::Together, "pay")] {
            let pool = pool("pay", placement);
            let bucket = Bucket { pool: &pool, number: 3 };
            assert!(ALL.iter().all(|which| hash_tag(&bucket.key(*which)) == Some(tag)));
            assert_eq!(bucket.slot(), slots::slot(&format!("{{{tag}}}")));
            let shared = placement == Placement::Together;
            assert_eq!(hash_tag(&quiet_key(&pool)) == Some(tag), shared, "{placement:?}");
        }
        assert_eq!(all(&pool("{a}b", Placement::Spread)).err().map(|e| e.fault), Some(Fault::Unsupported));
    }

    #[test]
    fn no_two_buckets_share_a_key() {
        let mut keys = std::collections::HashSet::new();
        for name in ["pay", "pay:3", "pay:3:3"] {
            for placement in [Placement::Spread, Placement::Together] {
                for bucket in all(&pool(name, placement)).unwrap() {
                    assert!(keys.insert(bucket.key(BucketKey::Due)), "{bucket}");
                    let (before, after) = around_number(bucket.pool);
                    assert_eq!(bucket.to_string(), format!("{before}{}{after}", bucket.number));
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
