-- Takes a vote back, forgets that its attempt waits, and wakes who waits first. A wake-up is only a hint: the lock stays
-- free, and the waiter keeps its place.
-- KEYS K F W S, and G if a copy of a vote may still come over another connection
-- ARGV 1 how long F is kept in ms · 2 owner · 3 entry that waits, or '' · 4 ms to keep the tombstone
-- {was ours, woke somebody, holder or false, fence}
local K, F, W, S, G = unpack(KEYS)
local owner = ARGV[2]

-- Entries are as in handover.lua. Who is overdue or does not listen is removed, at most 100 of them. A waiter is known to
-- live by its own polls, not by its arrival, which is of another clock.
local function wake_first()
  local at = '0'
  for _ = 1, 100 do
    local entry = call('ZRANGE', W, at, at)[1]
    if not entry then return 0 end
    local live, channel, id = entry:match('^1 %d+ %d+ (%d+) (%S+) (%x+)')
    if not live then
      at = ('%.0f'):format(at + 1) -- of another version
    else
      if not now then read_clock() end
      local seen = call('HGET', S, id)
      if seen and seen + live * 1000 > now_us and call('PUBSUB', 'NUMSUB', channel)[2] > 0 then
        try('PUBLISH', channel, id .. ' hint')
        return 1
      end
      call('ZREM', W, entry)
      call('HDEL', S, id)
    end
  end
  return 0
end

call('ZREM', W, ARGV[3]) -- first write: passes when memory is full, and a replica refuses it
call('HDEL', S, owner:sub(1, 32))
if G then call('SET', G, 1, 'PX', ARGV[4]) end
local holder = try('GET', K)
if type(holder) == 'table' then holder = '' end
local mine = holder == owner
if mine then
  call('DEL', K)
  holder = false
end
local woke = holder and 0 or wake_first()
return { mine and 1 or 0, woke, holder, call('GET', F) or '0' }
