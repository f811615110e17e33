-- Takes a vote back from an attempt that goes on. It waits again, in its old place: a yes had taken it out of the queue,
-- and one that is missing on some nodes and first on others would never get all of them.
-- KEYS K F W S Z H · G tombstone of this attempt
-- ARGV 1 how long F is kept in ms · 2 owner · 3 entry to queue, or '' · 4 its arrival
-- 1 taken back   0 was not ours
local WAITERS_MAX = 10000

local K, F, W, S, Z, H, G = unpack(KEYS)
local owner, entry, arrival = ARGV[2], ARGV[3], ARGV[4]
local id = owner:sub(1, 32)

call('PEXPIRE', F, keep, 'GT') -- a write, so that a replica refuses instead of answering from old data
local mine, holder = take_back(K, Z, H, owner)
if entry ~= '' and call('EXISTS', G) == 0 then
  read_clock()
  -- Its place may have gone to others meanwhile. Then it asks for one with its next poll.
  if call('ZSCORE', W, entry) or call('ZCARD', W) < WAITERS_MAX then
    call('ZADD', W, arrival, entry)
    call('PEXPIRE', W, 86400000)
    call('HSET', S, id, now)
    call('PEXPIRE', S, 86400000)
  end
end
-- It need not wake itself: it asks again after a pause, or when another vote finds it first in the queue.
if not holder then wake_first(W, S, false, id) end
return mine and 1 or 0
