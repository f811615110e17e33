-- Fragment: the queue. Entries are as in handover.lua. Their arrival is of their client's clock, so that all nodes have the
-- same order; one that is passed over because of it comes back with its next poll.

-- The first entry whose time is not over, that is not overdue and listens; its channel and its id. Others are removed, at most 100 of them.
local function first_waiter(W, S)
  local at = '0'
  for _ = 1, 100 do
    local found = call('ZRANGE', W, at, at, 'WITHSCORES')
    local entry, arrival = found[1], found[2]
    if not entry then return nil end
    local wait, live, channel, id = entry:match('^2 %d+ (%d+) (%d+) (%S+) (%x+)')
    if not live then
      at = ('%.0f'):format(at + 1) -- of another version
    else
      if not now then read_clock() end
      local seen = arrival + wait * 1000 > now_us and call('HGET', S, id)
      if seen and seen + live * 1000 > now_us and call('PUBSUB', 'NUMSUB', channel)[2] > 0 then
        return entry, channel, id
      end
      call('ZREM', W, entry)
      call('HDEL', S, id)
    end
  end
end

-- Tells the first of them to try. It is only a hint: the lock stays free, and the waiter keeps its place.
local function wake(channel, id)
  try('PUBLISH', channel, id .. ' hint')
end
