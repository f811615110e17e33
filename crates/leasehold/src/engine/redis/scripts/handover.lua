-- Fragment: hand-over.
-- COUNT and PUBLISH are the words for counting a channel's receivers and for telling them.
-- A waiter's entry in W is "1 <px> <wait ms> <live ms> <channel> <owner>", the same text on every resend; 1 is the
-- layout. Its score is its arrival, so its time limit is score + wait. S has the time each waiter was last heard of.

-- Gives K to the first live waiter and returns its fence. Returns false if nobody waits, nil if 100 entries were dead
-- and more wait, and 0 if the first entry has a layout that this version does not know. `first` was popped already.
-- ZPOPMIN comes first: it passes when memory is full, and what follows it then does too. Receivers are counted before
-- anything is written: a grant that was published is never given to another.
local function hand_over(K, F, W, S, first)
  local dead = {}
  for _ = 1, 100 do
    first = first or call('ZPOPMIN', W)
    local entry, arrival = first[1], first[2]
    if not entry then return false end
    local px, wait, live, channel, owner = entry:match('^1 (%d+) (%d+) (%d+) (%S+) (.*)$')
    if not px then
      call('ZADD', W, arrival, entry)
      return 0
    end
    local id = owner:sub(1, 32)
    -- Who came lately was heard of lately.
    local is_live = arrival + live * 1000 > now_us
    if not is_live then
      local seen = call('HGET', S, id)
      is_live = seen and seen + live * 1000 > now_us
    end
    call('HDEL', S, id)
    if is_live and not dead[channel] and arrival + wait * 1000 > now_us then
      if call('PUBSUB', COUNT, channel)[2] > 0 then
        local fence = next_fence(F)
        call('SET', K, owner, 'PX', px)
        redis.pcall(PUBLISH, channel, id .. ' ' .. fence)
        return fence
      end
      dead[channel] = true
    end
    first = nil
  end
end
