-- Fragment: claim. Idempotent for its owner.
-- keys K F W S G   arguments owner, px, entry to queue ('': ask once), arrival told before or 0
-- <fence>                                          granted, or already ours: the ttl is refreshed
-- {2, ahead, pttl, last fence, arrival, holder}    queued
-- {3, pttl, holder}                                busy, not queued
-- {4}                                              too many wait
-- {5}                                              this attempt has ended
-- {6}                                              a waiter of an unknown layout
-- {7}                                              nobody's, but 100 entries were dead and more wait: send it again
local WAITERS_MAX = 10000

-- Already ours: the ttl is refreshed.
local function refresh(k, a)
  call('PEXPIRE', KEYS[k], ARGV[a + 1])
  return call('GET', KEYS[k + 1]) or next_fence(KEYS[k + 1])
end

-- Queues, or is refused; `pttl` is how long that will be so at most, unless it is renewed.
local function wait_for(k, a, holder, pttl)
  local F, W, S = KEYS[k + 1], KEYS[k + 2], KEYS[k + 3]
  local owner, entry, arrival = ARGV[a], ARGV[a + 2], ARGV[a + 3]
  if entry == '' then
    call('PEXPIRE', F, keep, 'GT') -- a write, so that a replica refuses instead of answering from old data
    return { 3, pttl, holder }
  end
  local ahead = call('ZRANK', W, entry)
  if ahead then
    call('PEXPIRE', W, 86400000) -- first write: passes when memory is full, and a replica refuses it
  else
    if call('ZCARD', W) >= WAITERS_MAX then return { 4 } end
    if arrival == '0' then
      arrival = now
      local last = call('ZRANGE', W, -1, -1, 'WITHSCORES')[2]
      if last and tonumber(last) >= now_us then arrival = ('%.0f'):format(last + 1) end
    end
    call('ZADD', W, arrival, entry)
    call('PEXPIRE', W, 86400000)
    ahead = call('ZRANK', W, entry)
  end
  call('HSET', S, owner:sub(1, 32), now)
  call('PEXPIRE', S, 86400000)
  return { 2, ahead, pttl, call('GET', F) or '0', arrival, holder }
end

local function claim(k, a)
  local K, F, W, S, G = KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], KEYS[k + 4]
  local owner, px, entry = ARGV[a], ARGV[a + 1], ARGV[a + 2]
  check_px(px)
  if call('EXISTS', G) == 1 then return { 5 } end

  local holder = call('GET', K)
  if not holder then
    local given = false
    if call('ZRANGE', W, 0, 0)[1] == entry then
      call('ZPOPMIN', W)
      call('HDEL', S, owner:sub(1, 32))
    else
      given = hand_over(K, F, W, S)
    end
    if given == 0 then return { 6 } end
    if given == nil then return { 7 } end
    if given == false then
      local fence = next_fence(F)
      call('SET', K, owner, 'PX', px)
      return fence
    end
    holder = call('GET', K)
  end
  if holder == owner then return refresh(k, a) end
  return wait_for(k, a, holder, call('PTTL', K))
end
