-- Fragment: release and abandon are one: they end an attempt, whether it holds or waits.
-- release              keys K F W S Z H L     arguments id and a space
-- abandon              keys K F W S Z H L     arguments id and a space, entry as queued or ''
-- abandon_unanswered   keys K F W S Z H L G   arguments id and a space, entry as queued or '', ms to keep the tombstone; for an
--                      attempt of which a copy of the claim is unanswered and may still come
-- 1                    released, nobody waits
-- {2, fence}           handed over to one holder
-- {2, fence, count}    handed over to members; the fence is that of the first
-- 3                    nobody's now, but 100 entries were dead and more wait: send it again
-- {0, pttl, holders}   was not ours (pttl -2: nobody's); holders as `tell_holders` has them

-- Gives on what is free of K: all of it, or what is left beside its members. Deletes a K that is nobody's.
local function pass_on(k, how, taken)
  local outcome, fence, count = hand_over(k, how, taken)
  if outcome == 'given' then
    local is_alone = call('GET', KEYS[k]):find('^%x+ ')
    return { 2, fence, not is_alone and count or nil }
  end
  if not how then call('DEL', KEYS[k]) end
  return outcome == 'again' and 3 or 1
end

-- Ends the lease of a member, whose text in H is `held`.
local function leave(k, how, taken, id, held)
  local take = held:match('^%d+ (%d+) ')
  remove_members(k, { id .. take })
  if call('EXISTS', KEYS[k + 4]) == 0 then return pass_on(k, nil, 0) end
  if how == 'p' then
    taken = taken - take
    call('SET', KEYS[k], 'leasehold:permits ' .. taken, 'KEEPTTL')
  end
  return pass_on(k, how, taken)
end

local function end_attempt(k, id, entry, tombstone)
  local W, S = KEYS[k + 2], KEYS[k + 3]
  local text, how, taken = holders(k)
  -- First write: passes when memory is full, and a replica refuses it.
  if entry then
    call('ZREM', W, entry)
    call('HDEL', S, id)
  else
    call('PEXPIRE', KEYS[k], '0', 'GT')
  end
  if tombstone then call('SET', KEYS[k + 7], 1, 'PX', tombstone) end
  if how == 'x' then
    if text:sub(1, 33) == id then return pass_on(k, nil, 0) end
  else
    local held = how and call('HGET', KEYS[k + 5], id)
    if held then return leave(k, how, taken, id, held) end
    -- Whoever waited behind it may be next.
    if hand_over(k, how, taken) == 'again' then return 3 end
    text, how = holders(k)
  end
  local told, pttl = tell_holders(k, text, how)
  return { 0, pttl, told }
end

local function release(k, a)
  return end_attempt(k, ARGV[a])
end

local function abandon(k, a)
  return end_attempt(k, ARGV[a], ARGV[a + 1])
end

local function abandon_unanswered(k, a)
  return end_attempt(k, ARGV[a], ARGV[a + 1], ARGV[a + 2])
end

-- The fence of a holder of this library, as a number; 0 of any other.
local function fence_of(holder)
  local id, fence = holder:match('^(%x+) (%d+) %d+ %d+ %S+ ')
  return id and #id == 32 and tonumber(fence) or 0
end

-- Takes K from the holder that was seen.
-- keys K F W S Z H L   arguments fence seen (0: a holder of another library)
-- answers as release
local function force_release(k, a)
  local text, how, taken = holders(k)
  call('PEXPIRE', KEYS[k], '0', 'GT') -- as in release
  if how == 'x' then
    if fence_of(text) == tonumber(ARGV[a]) then return pass_on(k, nil, 0) end
  elseif how then
    local members = call('HGETALL', KEYS[k + 5])
    for i = 1, #members, 2 do
      if members[i + 1]:match('^%d+') == ARGV[a] then return leave(k, how, taken, members[i], members[i + 1]) end
    end
  end
  local told, pttl = tell_holders(k, text, how)
  return { 0, pttl, told }
end

-- Claims several locks, all or none. What was granted before one is refused is given back within the same script: nobody sees it.
-- keys as those of each claim   arguments how many, then those of each claim, none of which queues
-- {<fence>, ...}   all granted
-- {place, reply}   refused, as the claim in this place was, which is counted from 0; {9, error} if it failed
local function claim_all(k, a)
  local count, fences = tonumber(ARGV[a]), {}
  for i = 0, count - 1 do
    local ok, reply = pcall(claim, k + 8 * i, a + 1 + 7 * i)
    if not ok or type(reply) ~= 'string' then
      for j = 0, i - 1 do end_attempt(k + 8 * j, ARGV[a + 1 + 7 * j]) end
      return { i, ok and reply or { 9, type(reply) == 'table' and reply.err or tostring(reply) } }
    end
    fences[i + 1] = reply
  end
  return fences
end
