//! The scripts of a lone claim and release, sent without the library: ours, and those of a peer.

use redis::{Cmd, Script};

/// The scripts that the library sends for an uncontended lock; a test here compares the hashes with those it loaded.
const CLAIM: &str = include_str!("../../crates/leasehold-redis/src/scripts/claim_free.lua");
const RELEASE: &str = include_str!("../../crates/leasehold-redis/src/scripts/release_unwanted.lua");

/// Loads a script into a server.
fn load(script: &str) -> Cmd {
    let mut cmd = redis::cmd("SCRIPT");
    cmd.arg("LOAD").arg(script);
    cmd
}

fn call(script: &str) -> Cmd {
    let mut cmd = redis::cmd("EVALSHA");
    cmd.arg(Script::new(script).get_hash());
    cmd
}

/// Builds claims and releases of one lock as the library does.
pub(crate) struct RawLock {
    keys: [String; 3],
    attempts: u64,
}

impl RawLock {
    pub(crate) fn new(name: &str) -> Self {
        let [lock, waiters] = [format!("lock:{name}"), format!("leasehold:waiters:{{lock:{name}}}")];
        Self { keys: [lock, "leasehold:fence".to_owned(), waiters], attempts: 0 }
    }

    pub(crate) fn load() -> [Cmd; 2] {
        [CLAIM, RELEASE].map(load)
    }

    /// The next attempt's random part, and the space behind it.
    pub(crate) fn next_id(&mut self) -> String {
        self.attempts += 1;
        format!("{:032x} ", self.attempts)
    }

    pub(crate) fn claim(&self, id: &str) -> Cmd {
        self.claim_as(id, "1700000000000 12345 bench-host ")
    }

    /// The same with the shortest holder data.
    pub(crate) fn claim_shortly(&self, id: &str) -> Cmd {
        self.claim_as(id, "1700000000000 1 h ")
    }

    fn claim_as(&self, id: &str, holder: &str) -> Cmd {
        let [lock, fence, waiters] = &self.keys;
        let mut cmd = call(CLAIM);
        cmd.arg(4).arg(lock).arg(fence).arg(waiters);
        cmd.arg(format!("leasehold:gone:{{{lock}}}:{}", id.trim_end()));
        cmd.arg(id).arg(holder).arg(30_000);
        cmd
    }

    pub(crate) fn release(&self, id: &str) -> Cmd {
        let mut cmd = call(RELEASE);
        cmd.arg(1).arg(&self.keys[0]).arg(id);
        cmd
    }
}

/// What Redisson's fenced lock does for an uncontended lock, command by command: a hash with a field per holder, a counter
/// per name, a message to subscribers, and the outcome of a release, stored until the client has the reply, so that a
/// retry finds it.
const PEER_CLAIM: &str = "
if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
  local fence = redis.call('INCR', KEYS[2])
  redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  return { -1, fence }
end
return { redis.call('PTTL', KEYS[1]), -1 }
";
const PEER_RELEASE: &str = "
local outcome = redis.call('GET', KEYS[3])
if outcome then return tonumber(outcome) end
if redis.call('HEXISTS', KEYS[1], ARGV[3]) == 0 then return nil end
local holds, freed = redis.call('HINCRBY', KEYS[1], ARGV[3], -1), 0
if holds > 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
else
  redis.call('DEL', KEYS[1])
  redis.call(ARGV[4], KEYS[2], ARGV[1])
  freed = 1
end
redis.call('SET', KEYS[3], freed, 'PX', ARGV[5])
return freed
";

/// Builds the commands of the peer.
pub(crate) struct PeerLock {
    name: String,
    field: String,
}

impl PeerLock {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), field: "01234567-89ab-cdef-0123-456789abcdef:1".to_owned() }
    }

    pub(crate) fn load() -> [Cmd; 2] {
        [PEER_CLAIM, PEER_RELEASE].map(load)
    }

    pub(crate) fn claim(&self) -> Cmd {
        let mut cmd = call(PEER_CLAIM);
        cmd.arg(2).arg(&self.name).arg(format!("redisson_lock_token:{{{}}}", self.name));
        cmd.arg(30_000).arg(&self.field);
        cmd
    }

    /// The release, and what its client sends after the reply.
    pub(crate) fn release(&self) -> [Cmd; 2] {
        let outcome = format!("redisson_unlock_latch:{{{}}}:0123456789abcdef0123456789abcdef", self.name);
        let mut cmd = call(PEER_RELEASE);
        cmd.arg(3).arg(&self.name).arg(format!("redisson_lock__channel:{{{}}}", self.name)).arg(&outcome);
        cmd.arg(0).arg(30_000).arg(&self.field).arg("PUBLISH").arg(13_500);
        let mut forget = redis::cmd("DEL");
        forget.arg(outcome);
        [cmd, forget]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_testkit::{RedisServer, resp::Reply};

    #[tokio::test]
    async fn the_library_sends_the_very_same_scripts() {
        let Some(server) = RedisServer::shared_or_skip() else { return };
        let leases = leasehold::Leasehold::connect(server.url()).await.unwrap();
        let _ = leases.lock("x").acquire().await.unwrap().release().await.unwrap();
        for script in [CLAIM, RELEASE] {
            let known = server.cli(&["SCRIPT", "EXISTS", Script::new(script).get_hash()]);
            assert_eq!(known, Reply::List(vec![Reply::Int(1)]));
        }
    }
}
