-- Fragment: the queue. Entries are as in handover.lua. Their arrival is of their client's clock, so that all nodes have the
-- same order; one that is passed over because of it comes back with its next poll.
-- A writer that waits keeps readers out that came after it, for as long as it is heard of: its entry lapses with its polls.
local READERS_MAX = 100

-- The channel and the id of a waiter whose time is not over, that is not overdue and listens, and whether it wants to read.
-- Another one is removed. `id` is nil for the entry of another version.
local function live_waiter(W, S, entry, arrival)
  local reads, wait, live, channel, id = entry:match('^2(s?) %d+ (%d+) (%d+) (%S+) (%x+)')
  if not live then return nil end
  if not now then read_clock() end
  local seen = arrival + wait * 1000 > now_us and call('HGET', S, id)
  if seen and seen + live * 1000 > now_us and call('PUBSUB', 'NUMSUB', channel)[2] > 0 then
    return channel, id, reads == 's'
  end
  call('ZREM', W, entry)
  call('HDEL', S, id)
  return nil, id
end

-- The first live entry from a place on: the entry, its channel, its id, whether it wants to read, and its place. At most 100
-- others are removed.
local function next_waiter(W, S, at)
  for _ = 1, 100 do
    local found = call('ZRANGE', W, at, at, 'WITHSCORES')
    local entry, arrival = found[1], found[2]
    if not entry then return nil end
    local channel, id, reads = live_waiter(W, S, entry, arrival)
    if channel then return entry, channel, id, reads, at end
    if not id then at = at + 1 end
  end
end

-- Whether a writer waits, and before this entry if that waits too. Only the first of a long queue are looked at: a reader more
-- than that many places behind them is let in.
local function writer_waits(W, S, entry)
  local found = call('ZRANGE', W, 0, 2 * READERS_MAX - 1, 'WITHSCORES')
  for i = 1, #found, 2 do
    if found[i] == entry then return false end
    if found[i]:sub(1, 2) == '2 ' and live_waiter(W, S, found[i], found[i + 1]) then return true end
  end
  return false
end

-- Tells a waiter to try. It is only a hint: the lock stays free, and the waiter keeps its place.
local function wake(channel, id)
  try('PUBLISH', channel, id .. ' hint')
end

-- Wakes the first waiter, and if that is a reader the run of readers that it begins; beside readers no writer, and never the
-- one of `own_id`. How many were woken.
local function wake_first(W, S, beside_readers, own_id)
  local at, woken = 0, 0
  for nth = 1, READERS_MAX do
    local entry, channel, id, reads, place = next_waiter(W, S, at)
    if not entry or not reads and (beside_readers or nth > 1) then break end
    if id ~= own_id then
      wake(channel, id)
      woken = woken + 1
    end
    if not reads then break end
    at = place + 1
  end
  return woken
end
