-- Takes a vote back, removes its attempt from the queue, and wakes the first waiter.
-- KEYS K F W S, and G if a copy of a vote may still come over another connection
-- ARGV 1 how long F is kept in ms · 2 owner · 3 entry that waits, or '' · 4 ms to keep the tombstone
-- {was ours, woke a waiter, holder or false, fence}
local K, F, W, S, G = unpack(KEYS)
local owner = ARGV[2]

call('ZREM', W, ARGV[3]) -- first write: passes when memory is full, and a replica refuses it
call('HDEL', S, owner:sub(1, 32))
if G then call('SET', G, 1, 'PX', ARGV[4]) end
local holder = try('GET', K)
if type(holder) == 'table' then holder = '' end
local mine = is_held_by(holder, owner)
if mine then
  call('DEL', K)
  holder = false
end
local woke = 0
if not holder then
  local entry, channel, id = first_waiter(W, S)
  if entry then
    wake(channel, id)
    woke = 1
  end
end
return { mine and 1 or 0, woke, holder, call('GET', F) or '0' }
