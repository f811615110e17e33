-- Fragment: claim. Idempotent for its owner.
-- keys K F W S G   arguments id and a space, rest of the owner value, px, what its entry begins with ('': asks once),
--                  arrival told before or 0
-- <fence>                                          granted, or already ours: the ttl is refreshed
-- {2, ahead, pttl, last fence, arrival, holder}    queued
-- {3, pttl, holder}                                busy, not queued
-- {4}                                              too many wait
-- {5}                                              this attempt has ended
-- {6}                                              a waiter of an unknown layout
-- {7}                                              nobody's, but 100 entries were dead and more wait: send it again
local WAITERS_MAX = 10000

-- Marks K by a 0 before its fence: somebody waits. An ordinary release, which looks at K alone, then does nothing, and comes
-- again as one that hands over. Where somebody waits, K is marked or not ours; it may be marked without.
local function mark(K, holder)
  if holder and holder:find('^%x+ [1-9]%d* ') and holder:find(' ', 1, true) == 33 then
    call('SET', K, holder:sub(1, 33) .. '0' .. holder:sub(34), 'KEEPTTL')
  end
end

-- Queues, or is refused; `pttl` is how long that will be so at most, unless it is renewed.
local function wait_for(k, a, holder, pttl)
  local W, S = KEYS[k + 2], KEYS[k + 3]
  local id, head, arrival = ARGV[a], ARGV[a + 3], ARGV[a + 4]
  if head == '' then
    call('PEXPIRE', KEYS[k], '0', 'GT') -- changes nothing, but a replica refuses it instead of answering from old data
    return { 3, pttl, holder }
  end
  local entry = head .. id .. ARGV[a + 1]
  local ahead = call('ZRANK', W, entry)
  local came_back = ahead or arrival ~= '0'
  if ahead then
    call('PEXPIRE', W, '86400000') -- first write: passes when memory is full, and a replica refuses it
  else
    if call('ZCARD', W) >= WAITERS_MAX and not remove_silent(W, S) then return { 4 } end
    if arrival == '0' then
      arrival = now
      local last = call('ZRANGE', W, -1, -1, 'WITHSCORES')[2]
      if last and last - now_us >= 0 then arrival = ('%.0f'):format(last + 1) end
    end
    call('ZADD', W, arrival, entry)
    call('PEXPIRE', W, '86400000')
    ahead = call('ZRANK', W, entry)
  end
  mark(KEYS[k], holder)
  if came_back then
    call('HSET', S, id, now)
    call('PEXPIRE', S, '86400000')
  end
  -- A lost F is above all that it gave: a hand-over from before must not look like a later one.
  return { 2, ahead, pttl, call('GET', KEYS[k + 1]) or now, arrival, holder }
end

local function claim(k, a)
  local K, F, W, S = KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3]
  local id, rest, px = ARGV[a], ARGV[a + 1], ARGV[a + 2]
  check_px(px)
  if call('EXISTS', KEYS[k + 4]) == 1 then return { 5 } end

  local holder = call('GET', K)
  -- In a grace a lock that looks free may be held by somebody whom this server forgot.
  if not holder and grace_ms <= 0 then
    local first, given = call('ZRANGE', W, 0, 0)[1], false
    if first == ARGV[a + 3] .. id .. rest then
      call('ZPOPMIN', W)
      call('HDEL', S, id)
    elseif first then
      given = hand_over(K, F, W, S)
    end
    if given == 0 then return { 6 } end
    if given == nil then return { 7 } end
    if given == false then
      local fence = next_fence(F)
      call('SET', K, id .. '0' .. fence .. ' ' .. rest, 'PX', px) -- marked: others may wait
      return fence
    end
    holder = call('GET', K)
  end
  if holder and holder:sub(1, 33) == id then
    call('PEXPIRE', K, px)
    return holder:match('^%x+ (%d+) ')
  end
  return wait_for(k, a, holder, math.max(grace_ms, call('PTTL', K)))
end
