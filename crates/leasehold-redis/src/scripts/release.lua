-- Fragment: release and abandon are one: they end an attempt, whether it holds or waits.
-- release              keys K F W S     arguments id and a space
-- abandon              keys K F W S     arguments id and a space, entry as queued or ''
-- abandon_unanswered   keys K F W S G   arguments id and a space, entry as queued or '', ms to keep the tombstone; for an
--                      attempt of which a copy of the claim is unanswered and may still come
-- 1                    released, nobody waits
-- {2, fence}           handed over
-- 3                    nobody's now, but 100 entries were dead and more wait: send it again
-- {0, pttl, holder}    was not ours (pttl -2: nobody's)

-- Gives K on, or deletes it.
local function pass_on(k)
  local given = hand_over(KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3])
  if given and given ~= 0 then return { 2, given } end
  call('DEL', KEYS[k])
  return given == nil and 3 or 1
end

local function end_attempt(k, id, entry, tombstone)
  local K, W, S = KEYS[k], KEYS[k + 2], KEYS[k + 3]
  local holder = call('GET', K)
  -- First write: passes when memory is full, and a replica refuses it.
  if entry then
    call('ZREM', W, entry)
    call('HDEL', S, id)
  else
    call('PEXPIRE', K, '0', 'GT')
  end
  if tombstone then call('SET', KEYS[k + 4], 1, 'PX', tombstone) end
  if holder and holder:sub(1, 33) == id then return pass_on(k) end
  if not holder and hand_over(K, KEYS[k + 1], W, S) == nil then return 3 end
  return { 0, call('PTTL', K), call('GET', K) }
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
-- keys K F W S   arguments fence seen (0: a holder of another library)
-- answers as release
local function force_release(k, a)
  call('PEXPIRE', KEYS[k], '0', 'GT') -- as in release
  local holder = call('GET', KEYS[k])
  if holder and fence_of(holder) == tonumber(ARGV[a]) then return pass_on(k) end
  return { 0, call('PTTL', KEYS[k]), holder }
end
