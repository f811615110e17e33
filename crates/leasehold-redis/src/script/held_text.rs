//! The text of a lock, for a server that compares it.

use bytes::BufMut;
use redis::{RedisWrite, ToRedisArgs};

use super::parts;
use leasehold_core::{fence::Fence, owner::Owner};

/// The text of K, unless it is marked: the owner value with the fence behind its id.
pub(crate) struct HeldText<'a> {
    pub(crate) owner: &'a Owner,
    pub(crate) fence: Fence,
}

impl ToRedisArgs for HeldText<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        let ((id, rest), mut fence) = (parts(self.owner), itoa::Buffer::new());
        let parts = [id, fence.format(self.fence.get()), " ", rest];
        let mut text = out.bufmut_for_next_arg(parts.iter().map(|part| part.len()).sum());
        for part in parts {
            text.put_slice(part.as_bytes());
        }
    }
}
