-- Fragment: who waits, and hand-over.
-- COUNT and PUBLISH are the words for counting a channel's receivers and for publishing to them.
-- A waiter's entry in W is "2 <px> <wait ms> <live ms> <channel> <id> <rest of the owner value>", the same text on every
-- resend; 2 is the layout. Its score is its arrival. S has the time at which a waiter that came back was last heard of.
local ENTRY = '^2 (%d+) (%d+) (%d+) (%S+) (%x+ )(.*)$'
local DEAD_MAX = 100

-- Whether a waiter was heard of lately, at its arrival or later, and its channel has a receiver. One that was not heard
-- of because the clock went forward is not forgotten: it keeps its arrival, and its next poll brings it back.
local silent = {}
local function is_live(S, arrival, wait, live, channel, id)
  local seen = call('HGET', S, id)
  local silent_after = seen and seen + live * 1000 or arrival + math.min(wait, live) * 1000
  if silent_after - now_us <= 0 then return false end
  if silent[channel] == nil then silent[channel] = call('PUBSUB', COUNT, channel)[2] == 0 end
  return not silent[channel]
end

-- Gives K to the first live waiter and returns its fence. Returns false if nobody waits, nil if 100 entries were dead
-- and more wait, and 0 if the first entry has a layout that this version does not know.
-- ZPOPMIN comes first: it passes when memory is full, and what follows it then does too. Receivers are counted before
-- anything is written: a grant that was published is never given to another. Others may wait, so K is marked.
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
    local wanted = is_live(S, arrival, wait, live, channel, id)
    call('HDEL', S, id)
    if wanted then
      local fence = next_fence(F)
      call('SET', K, id .. '0' .. fence .. ' ' .. rest, 'PX', px)
      try(PUBLISH, channel, id .. fence)
      return fence
    end
  end
end

-- Removes dead waiters among the first, and returns whether there were any.
local function remove_dead(W, S)
  local first, removed = call('ZRANGE', W, 0, DEAD_MAX - 1, 'WITHSCORES'), false
  for i = 1, #first, 2 do
    local _, wait, live, channel, id = first[i]:match(ENTRY)
    if wait and not is_live(S, first[i + 1], wait, live, channel, id) then
      call('ZREM', W, first[i])
      call('HDEL', S, id)
      removed = true
    end
  end
  return removed
end
