//! The scripts that the library sends, sent without the library.

use redis::{Cmd, Script};

/// The same text in the same order as in the library's `engine/redis/script.rs`; a test here compares the hash with
/// what the library loaded.
const LEASES: &str = concat!(
    include_str!("../../crates/leasehold/src/engine/redis/scripts/begin.lua"),
    include_str!("../../crates/leasehold/src/engine/redis/scripts/fence.lua"),
    include_str!("../../crates/leasehold/src/engine/redis/scripts/ordinary.lua"),
    include_str!("../../crates/leasehold/src/engine/redis/scripts/wake_whole.lua"),
    "local function all_cases()\n",
    include_str!("../../crates/leasehold/src/engine/redis/scripts/handover.lua"),
    include_str!("../../crates/leasehold/src/engine/redis/scripts/claim.lua"),
    include_str!("../../crates/leasehold/src/engine/redis/scripts/release.lua"),
    include_str!("../../crates/leasehold/src/engine/redis/scripts/renew.lua"),
    "return { c = claim, r = release, a = abandon, t = abandon_unanswered, f = force_release, n = renew }\n",
    "end\n",
    "local function all_records()\n",
    include_str!("../../crates/leasehold/src/engine/redis/scripts/records/look.lua"),
    include_str!("../../crates/leasehold/src/engine/redis/scripts/records/watchers.lua"),
    include_str!("../../crates/leasehold/src/engine/redis/scripts/records/begin.lua"),
    include_str!("../../crates/leasehold/src/engine/redis/scripts/records/settle.lua"),
    include_str!("../../crates/leasehold/src/engine/redis/scripts/records/renew.lua"),
    include_str!("../../crates/leasehold/src/engine/redis/scripts/records/cases.lua"),
    "end\n",
    "local k, a = 1, 2\n",
    include_str!("../../crates/leasehold/src/engine/redis/scripts/dispatch.lua"),
);

/// Builds claims and releases of one lock as the library does.
pub(crate) struct RawLock {
    hash: String,
    keys: [String; 4],
    attempts: u64,
}

const CHANNEL: &str = "leasehold:wake:0123456789abcdef:0";

impl RawLock {
    pub(crate) fn new(name: &str) -> Self {
        let tail = format!("{{lock:{name}}}");
        Self {
            hash: Script::new(LEASES).get_hash().to_owned(),
            keys: [
                format!("lock:{name}"),
                format!("leasehold:fence:{tail}"),
                format!("leasehold:waiters:{tail}"),
                format!("leasehold:seen:{tail}"),
            ],
            attempts: 0,
        }
    }

    /// Teaches a server the scripts.
    pub(crate) fn load() -> Cmd {
        let mut cmd = redis::cmd("SCRIPT");
        cmd.arg("LOAD").arg(LEASES);
        cmd
    }

    /// The next attempt's owner value.
    pub(crate) fn next_owner(&mut self) -> String {
        self.attempts += 1;
        format!("{:032x} 1700000000000 12345 bench-host ", self.attempts)
    }

    pub(crate) fn claim(&self, owner: &str) -> Cmd {
        let [lock, fence, waiters, seen] = &self.keys;
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(&self.hash).arg(5).arg(lock).arg(fence).arg(waiters).arg(seen);
        cmd.arg(format!("leasehold:gone:{{{lock}}}:{}", &owner[..32]));
        cmd.arg(86_400_000).arg("c").arg(owner).arg(30_000);
        cmd.arg(format!("1 30000 5000 15000 {CHANNEL} {owner}")).arg("0");
        cmd
    }

    pub(crate) fn release(&self, owner: &str) -> Cmd {
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(&self.hash).arg(4);
        for key in &self.keys {
            cmd.arg(key);
        }
        cmd.arg(86_400_000).arg("r").arg(owner);
        cmd
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_testkit::{RedisServer, resp::Reply};

    #[tokio::test]
    async fn the_library_sends_the_very_same_script() {
        let Some(server) = RedisServer::shared_or_skip() else { return };
        let leases = leasehold::Leasehold::connect(server.url()).await.unwrap();
        leases.lock("x").acquire().await.unwrap().release().await.unwrap();
        let known = server.cli(&["SCRIPT", "EXISTS", Script::new(LEASES).get_hash()]);
        assert_eq!(known, Reply::List(vec![Reply::Int(1)]));
    }
}
