-- Takes a vote back, removes its attempt from the queue, and wakes who can have the lock next.
-- KEYS K F W S Z H, and G if a copy of a vote may still come over another connection
-- ARGV 1 how long F is kept in ms · 2 owner · 3 entry that waits, or '' · 4 ms to keep the tombstone
-- {was ours, how many waiters were woken, holder or false, fence}
local K, F, W, S, Z, H, G = unpack(KEYS)
local owner = ARGV[2]

local waited = call('ZREM', W, ARGV[3]) -- first write: passes when memory is full, and a replica refuses it
call('HDEL', S, owner:sub(1, 32))
if G then call('SET', G, 1, 'PX', ARGV[4]) end
local mine, holder = take_back(K, Z, H, owner)
local woken = 0
-- A writer that waits no longer lets the readers behind it in beside those that read.
if not holder or holder == SHARED and waited == 1 then woken = wake_first(W, S, holder) end
return { mine and 1 or 0, woken, holder, last_fence(F) or '0' }
