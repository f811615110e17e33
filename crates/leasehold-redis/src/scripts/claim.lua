-- Fragment: claim. Idempotent for its owner.
-- keys K F W S Z H L G   arguments id and a space, rest of the owner value, px, what its entry begins with ('': asks once),
--                        arrival told before or 0, take ('': alone, 0: as a reader), limit of permits or ''
-- <fence>                                           granted, or already ours: the ttl is refreshed
-- {2, ahead, pttl, last fence, arrival, holders}    queued; holders as `tell_holders` has them
-- {3, pttl, holders}                                busy, not queued
-- {4}                                               too many wait
-- {5}                                               this attempt has ended
-- {6}                                               a waiter of an unknown layout
-- {7}                                               nobody's, but 100 entries were dead and more wait: send it again
-- {8, how}                                          in use as another kind of lock: see `holders`
-- {10, limit}                                       the limit is another one
-- {11, limit}                                       the limit is below what is asked for
local WAITERS_MAX = 10000

-- Marks K by a 0 before its fence: somebody waits. An ordinary release, which looks at K alone, then does nothing, and comes
-- again as one that hands over. Where somebody waits, K is marked or not ours; it may be marked without.
local function mark(K, holder)
  if holder:find('^%x+ [1-9]%d* ') and holder:find(' ', 1, true) == 33 then
    call('SET', K, holder:sub(1, 33) .. '0' .. holder:sub(34), 'KEEPTTL')
  end
end

-- Queues, or is refused; what it is told of the holders says for how long at most, unless they are renewed.
local function wait_for(k, a, text, how)
  local W, S = KEYS[k + 2], KEYS[k + 3]
  local id, head, arrival = ARGV[a], ARGV[a + 3], ARGV[a + 4]
  local told, pttl = tell_holders(k, text, how)
  pttl = math.max(grace_ms, pttl)
  if head == '' then
    call('PEXPIRE', KEYS[k], '0', 'GT') -- changes nothing, but a replica refuses it instead of answering from old data
    return { 3, pttl, told }
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
  if how == 'x' then mark(KEYS[k], text) end
  if came_back then
    call('HSET', S, id, now)
    call('PEXPIRE', S, '86400000')
  end
  -- A lost F is above all that it gave: a hand-over from before must not look like a later one.
  return { 2, ahead, pttl, call('GET', KEYS[k + 1]) or now, arrival, told }
end

-- A name is a read-write lock or a semaphore, as long as anybody holds it.
local function is_other_kind(how, of)
  return how and (how == 'p') ~= (of ~= '')
end

local function claim(k, a)
  local K, H = KEYS[k], KEYS[k + 5]
  local id, rest, px, take, of = ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 5], ARGV[a + 6]
  check_px(px)
  if call('EXISTS', KEYS[k + 7]) == 1 then return { 5 } end

  local text, how, taken = holders(k)
  if how == 'x' and text:sub(1, 33) == id then
    call('PEXPIRE', K, px)
    return text:match('^%x+ (%d+) ')
  end
  local held = how and how ~= 'x' and call('HGET', H, id)
  if held then return extend_member(k, id, held, px) end

  if is_other_kind(how, of) then return { 8, how } end
  local limit, first
  if of ~= '' then
    limit, first = limit_in_force(k, of)
    -- One that waits already may go on to name an older limit.
    if ARGV[a + 4] == '0' and limit - of ~= 0 and first ~= of then return { 10, limit } end
    if limit - take < 0 then return { 11, limit } end
  end
  -- In a grace a lock that looks free may be held by somebody whom this server forgot.
  local is_free = grace_ms <= 0 and how ~= 'x'
  if is_free and call('EXISTS', KEYS[k + 2]) == 1 then
    local outcome, _, _, fence = hand_over(k, how, taken, id)
    if fence then return fence end
    if outcome == 'unknown' then return { 6 } end
    if outcome == 'again' then return { 7 } end
    text, how, taken = holders(k)
    is_free = call('EXISTS', KEYS[k + 2]) == 0
  end
  if is_other_kind(how, of) then return { 8, how } end
  if of ~= '' and not first then call('SET', KEYS[k + 6], of .. ' ' .. of, 'PX', LIMIT_MS) end
  local reply
  if is_free and take == '' and not how then
    reply = next_fence(KEYS[k + 1])
    call('SET', K, id .. '0' .. reply .. ' ' .. rest, 'PX', px) -- marked: others may wait
  elseif is_free and take ~= '' and how ~= 'x' and (of == '' or taken + take <= limit) then
    reply = next_fence(KEYS[k + 1])
    local ends, member = { end_of(px), id .. take }, { id, reply .. ' ' .. take .. ' ' .. rest }
    admit(k, not how, of == '' and 's' or 'p', taken + take, ends, member, px)
  else
    reply = wait_for(k, a, text, how)
  end
  -- Not earlier: it passes when memory is full, and what follows it then does too.
  if of ~= '' then call('PEXPIRE', KEYS[k + 6], LIMIT_MS) end
  return reply
end
