//! Releases by a command that compares and deletes, and the marks that make it see who waits.

use std::io::Write;

use rand::{RngExt, SeedableRng, rngs::StdRng};
use redis::ToRedisArgs;

use super::*;
use leasehold_core::{
    engine::{Format, Held, Hold, Leases, Released},
    fence::Fence,
};

fn hold(claim: &Claim, fence: u64) -> Hold {
    let Claim { name, owner, mode, format, ttl, lock_delay, .. } = claim.clone();
    Hold {
        name,
        owner,
        fence: Fence::new(fence),
        mode,
        format,
        ttl,
        lock_delay,
        of: Held::Lock,
        watch: false,
    }
}

struct Walk {
    server: RedisServer,
    redis: Redis,
    claims: Vec<Claim>,
}

impl Walk {
    /// Who has the lock, and under which fence, if it is one of ours that holds it.
    fn holder(&self, name: &str) -> Option<(Claim, u64, bool)> {
        let text = self.server.cli(&["GET", &format!("lock:{name}")]);
        let text = (!text.is_nil()).then(|| text.text().to_owned())?;
        let claim = self.claims.iter().find(|claim| claim.owner.id_text() == &text[..32])?;
        let fence = text.split(' ').nth(1)?;
        Some((claim.clone(), fence.parse().unwrap(), fence.starts_with('0')))
    }

    fn is_awaited(&self, name: &str) -> bool {
        let keys = self.redis.keys(&Name::new(name).unwrap());
        let waiters = String::from_utf8(keys.waiters().to_redis_args().remove(0)).unwrap();
        self.server.cli(&["EXISTS", &waiters]).int() == 1
    }

    async fn step(&mut self, random: &mut StdRng) {
        let name = ["a", "b"][random.random_range(0..2)];
        match (random.random_range(0..10), self.holder(name)) {
            (0..=3, _) | (_, None) => {
                let claim = claim(self.claims.len() as u128 + 1, name, random.random_ratio(3, 4));
                self.redis.claim(&claim, until()).await.unwrap();
                self.claims.push(claim);
            }
            (4 | 5, Some((claim, fence, _))) => {
                let is_awaited = self.is_awaited(name);
                let released = self.redis.release(&hold(&claim, fence), until()).await.unwrap();
                let expected = if is_awaited {
                    matches!(released, Released::HandedOver { to: 1, .. })
                } else {
                    released == Released::Free
                };
                assert!(expected, "awaited: {is_awaited}, {released:?}");
            }
            (6, Some((_, fence, _))) => {
                let _ = self
                    .redis
                    .force_release(&Name::new(name).unwrap(), Fence::new(fence), until())
                    .await
                    .unwrap();
            }
            (7, Some((claim, fence, _))) => {
                let closed = hold(&claim, fence).closed_for(Duration::from_millis(1));
                self.redis.renew(&[closed], until()).await.unwrap().remove(0).unwrap();
            }
            (8, _) => drop(self.server.cli(&["DEL", &format!("lock:{name}")])),
            _ => {
                let of = random.random_range(0..self.claims.len());
                self.redis.abandon(&self.claims[of], until()).await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn a_lock_that_somebody_waits_for_is_marked() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let redis = open(&server.url());
    let shard = redis.topology.shard(0, until()).await.unwrap();
    shard.connection().link(until()).await.unwrap().subscribe(until()).await.unwrap();
    let (mut walk, mut random) = (Walk { server, redis, claims: Vec::new() }, StdRng::seed_from_u64(7));
    let mut awaited = 0;
    for _ in 0..500 {
        walk.step(&mut random).await;
        for name in ["a", "b"] {
            if let (true, Some((_, fence, is_marked))) = (walk.is_awaited(name), walk.holder(name)) {
                assert!(is_marked, "a release that compares would not see who waits: {name}, {fence}");
                awaited += 1;
            }
        }
    }
    assert!(awaited > 100, "{awaited}");
}

fn releasing(redis: &Redis, claim: &Claim, fence: Option<u64>) -> Op {
    let (owner, entry, attempts) = (claim.owner.clone(), String::new(), redis.attempts.clone());
    let (mode, fence) = (claim.mode, fence.map(Fence::new));
    let step = Step::End { owner, mode, format: Format::Plain, fence, entry, attempts };
    Op::new(redis.keys(&claim.name), step)
}

#[tokio::test]
async fn a_release_is_no_script_where_the_server_compares_and_deletes() {
    let builder = RedisServer::builder().acl_line("user some on >pw ~* &* +@all");
    let Some(server) = builder.start_or_skip() else { return };
    let redis = open(&format!("redis://some:pw@{}", server.addr()));
    let shard = redis.topology.shard(0, until()).await.unwrap();
    if !shard.connection().link(until()).await.unwrap().compares_and_deletes() {
        let why = b"skipped: the server cannot compare and delete (Valkey 9 and Redis 8.4 can)\n";
        return std::io::stderr().write_all(why).unwrap();
    }
    for round in 0..5 {
        if round == 3 {
            // One of them is another server's command.
            for right in ["-delifeq", "-delex"] {
                server.cli(&["ACL", "SETUSER", "some", right]);
            }
        }
        let claims: Vec<_> = (0..20).map(|n| claim(100 * round + n, &format!("x{n}"), true)).collect();
        let answers = call(&redis, claims.iter().map(|claim| claiming(&redis, claim)).collect()).await;
        let before = calls_of_scripts(&server);
        let releases = claims.iter().zip(&answers);
        let mut releases: Vec<Op> =
            releases.map(|(claim, answer)| releasing(&redis, claim, fence(answer))).collect();
        let last = releases.split_off(19);
        for ends in [call(&redis, releases).await, call(&redis, last).await] {
            assert!(ends.iter().all(|end| matches!(end, Ok(Value::Int(1)))), "{ends:?}");
        }
        // The first call brings the scripts, and an end may overtake it.
        assert!(round == 0 || (calls_of_scripts(&server) == before) == (round < 3), "round {round}");
    }
}
