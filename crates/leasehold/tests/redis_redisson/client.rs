//! A client of Redisson, by hand: what its RLock and RFencedLock send.

use std::time::Duration;

use leasehold_testkit::{
    RedisServer,
    resp::{Connection, Reply},
};

use super::every_server::Servers;

/// Free, or its own: counted, and the lease begins anew.
const ACQUIRE: &str = "
if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
return redis.call('pttl', KEYS[1])";

const ACQUIRE_FENCED: &str = "
if redis.call('exists', KEYS[1]) == 0 then
  redis.call('incr', KEYS[2])
  redis.call('hset', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return {-1, redis.call('get', KEYS[2])}
end
return {redis.call('pttl', KEYS[1]), -1}";

const RELEASE: &str = "
local answered = redis.call('get', KEYS[3])
if answered then return tonumber(answered) end
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end
if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
  redis.call('pexpire', KEYS[1], ARGV[2])
  redis.call('set', KEYS[3], 0, 'px', ARGV[5])
  return 0
end
redis.call('del', KEYS[1])
redis.call(ARGV[4], KEYS[2], ARGV[1])
redis.call('set', KEYS[3], 1, 'px', ARGV[5])
return 1";

const RENEW: &str = "
if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return 0 end
return redis.call('pexpire', KEYS[1], ARGV[1])";

/// One of its threads, at one lock.
pub(crate) struct Redisson<'a> {
    server: &'a RedisServer,
    pub(crate) key: String,
    in_cluster: bool,
    owner: &'static str,
}

impl<'a> Redisson<'a> {
    pub(crate) fn new(servers: &'a Servers, key: &str) -> Self {
        let owner = "b1f1c3a8-53a1-4b0e-8f47-0c2f3f0a9d11:42";
        let in_cluster = matches!(servers, Servers::Cluster(_));
        Self { server: servers.server(key), key: key.into(), in_cluster, owner }
    }

    /// Braces are added to a name without one.
    fn side(&self, prefix: &str) -> String {
        if self.key.contains('{') {
            format!("{prefix}:{}", self.key)
        } else {
            format!("{prefix}:{{{}}}", self.key)
        }
    }

    pub(crate) fn token_key(&self) -> String {
        self.side("redisson_lock_token")
    }

    fn eval(&self, script: &str, keys: &[&str], args: &[&str]) -> Reply {
        let count = keys.len().to_string();
        let words: Vec<_> = ["EVAL", script, &count].iter().chain(keys).chain(args).copied().collect();
        self.server.cli(&words)
    }

    /// Whether it is granted.
    pub(crate) fn take(&self, lease: Duration) -> bool {
        let reply = self.eval(ACQUIRE, &[&self.key], &[&ms(lease), self.owner]);
        assert_eq!(reply.error(), None);
        reply.is_nil()
    }

    /// What RLock is told by the server.
    pub(crate) fn take_error(&self) -> String {
        let reply = self.eval(ACQUIRE, &[&self.key], &["30000", self.owner]);
        reply.error().unwrap_or_default().to_owned()
    }

    /// The token, if it is granted.
    pub(crate) fn take_fenced(&self, lease: Duration) -> Option<i64> {
        let reply = self.eval(ACQUIRE_FENCED, &[&self.key, &self.token_key()], &[&ms(lease), self.owner]);
        let [answer, token] = reply.list() else { panic!("{reply:?}") };
        (answer.int() == -1).then(|| token.int())
    }

    /// 1 released, 0 still held, `None` not its own.
    pub(crate) fn release(&self, request: &str) -> Option<i64> {
        let (channel, latch) = (self.channel(), format!("{}:{request}", self.side("redisson_unlock_latch")));
        let publish = if self.in_cluster { "spublish" } else { "publish" };
        let reply =
            self.eval(RELEASE, &[&self.key, &channel, &latch], &["0", "30000", self.owner, publish, "100"]);
        assert_eq!(reply.error(), None);
        (!reply.is_nil()).then(|| reply.int())
    }

    pub(crate) fn renew(&self, lease: Duration) -> bool {
        self.eval(RENEW, &[&self.key], &[&ms(lease), self.owner]).int() == 1
    }

    fn channel(&self) -> String {
        self.side("redisson_lock__channel")
    }

    /// Hears what is announced from here on.
    pub(crate) fn subscribed(&self) -> Connection {
        let mut connection = self.server.connect().unwrap();
        let subscribe = if self.in_cluster { "SSUBSCRIBE" } else { "SUBSCRIBE" };
        connection.command(&[subscribe, &self.channel()]).unwrap();
        connection
    }

    /// The next message.
    pub(crate) fn heard(connection: &mut Connection) -> String {
        connection.read_reply().unwrap().list()[2].text().to_owned()
    }

    /// How many clients hear what is announced.
    pub(crate) fn listeners(&self) -> i64 {
        let count = if self.in_cluster { "SHARDNUMSUB" } else { "NUMSUB" };
        self.server.cli(&["PUBSUB", count, &self.channel()]).list()[1].int()
    }

    pub(crate) fn announce(&self, message: &str) {
        let publish = if self.in_cluster { "SPUBLISH" } else { "PUBLISH" };
        self.server.cli(&[publish, &self.channel(), message]);
    }

    pub(crate) fn pttl(&self) -> i64 {
        self.server.cli(&["PTTL", &self.key]).int()
    }

    /// The fields and counts of the lock.
    pub(crate) fn holders(&self) -> Vec<String> {
        let reply = self.server.cli(&["HGETALL", &self.key]);
        reply.list().iter().map(|part| part.text().to_owned()).collect()
    }

    pub(crate) fn cli(&self, words: &[&str]) -> Reply {
        self.server.cli(words)
    }

    /// All keys of the server, in order.
    pub(crate) fn keys(&self) -> Vec<String> {
        let reply = self.server.cli(&["KEYS", "*"]);
        let mut keys: Vec<_> = reply.list().iter().map(|key| key.text().to_owned()).collect();
        keys.sort_unstable();
        keys
    }
}

fn ms(time: Duration) -> String {
    time.as_millis().to_string()
}
