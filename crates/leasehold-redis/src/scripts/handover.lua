-- Fragment: who waits, and hand-over.
-- PUBLISH is the word for publishing to a waiter's channel.
-- A waiter's entry in W is "2 <px> <wait ms> <live ms> <channel> <id> <rest of the owner value>", the same text on every
-- resend; 2 is the layout. Its score is its arrival. S has the time at which a waiter that came back was last heard of.
local ENTRY = '^2 (%d+) (%d+) (%d+) (%S+) (%x+ )(.*)$'
local DEAD_MAX = 100

-- Until when a waiter counts as there: it was heard of at its arrival, or later. One that was not heard of because the clock
-- went forward is not forgotten: it keeps its arrival, and its next poll brings it back.
local function silent_after(seen, arrival, wait, live)
  return seen and seen + live * 1000 or arrival + math.min(wait, live) * 1000
end

-- Gives K to the first live waiter and returns its fence. Returns false if nobody waits, nil if 100 entries were dead
-- and more wait, and 0 if the first entry has a layout that this version does not know.
-- ZPOPMIN comes first: it passes when memory is full, and what follows it then does too; a replica refuses it. Others may
-- wait, so K is marked. A grant that reached nobody is the next one's.
local function hand_over(K, F, W, S)
  if grace_ms > 0 then return false end -- those who wait keep their places
  for _ = 1, DEAD_MAX do
    local first = call('ZPOPMIN', W)
    local entry, arrival = first[1], first[2]
    if not entry then return false end
    local px, wait, live, channel, id, rest = entry:match(ENTRY)
    if not px then
      call('ZADD', W, arrival, entry)
      return 0
    end
    local seen = call('HGET', S, id)
    if seen then call('HDEL', S, id) end
    if silent_after(seen, arrival, wait, live) - now_us > 0 then
      local fence = next_fence(F)
      call('SET', K, id .. '0' .. fence .. ' ' .. rest, 'PX', px)
      if try(PUBLISH, channel, id .. fence) ~= 0 then return fence end
      call('DEL', K)
    end
  end
end

-- Removes waiters who were silent for too long among the first, and returns whether there were any.
local function remove_silent(W, S)
  local first, removed = call('ZRANGE', W, 0, DEAD_MAX - 1, 'WITHSCORES'), false
  for i = 1, #first, 2 do
    local _, wait, live, _, id = first[i]:match(ENTRY)
    if wait and silent_after(call('HGET', S, id), first[i + 1], wait, live) - now_us <= 0 then
      call('ZREM', W, first[i])
      call('HDEL', S, id)
      removed = true
    end
  end
  return removed
end
