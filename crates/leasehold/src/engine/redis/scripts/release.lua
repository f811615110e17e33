-- Fragment: release and abandon are one: they end an attempt, whether it holds or waits.
-- release              keys K F W S     arguments owner
-- abandon              keys K F W S     arguments owner, entry as queued or ''
-- abandon_unanswered   keys K F W S G   arguments owner, entry as queued or '', ms to keep the tombstone; for an attempt
--                      of which a copy of the claim is unanswered and may still come
-- 1                          released, nobody waits
-- {2, fence}                 handed over
-- 3                          nobody's now, but 100 entries were dead and more wait: send it again
-- {0, pttl, fence, holder}   was not ours (pttl -2: nobody's)
local function end_attempt(k, owner, entry, tombstone)
  local K, F, W, S = KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3]
  local holder = call('GET', K)
  local mine = holder == owner
  call('ZREM', W, entry) -- first write: passes when memory is full, and a replica refuses it
  call('HDEL', S, owner:sub(1, 32))
  if tombstone then call('SET', KEYS[k + 4], 1, 'PX', tombstone) end
  local given = false
  if mine or not holder then
    given = hand_over(K, F, W, S)
    if given == 0 then given = false end
    if mine and not given then call('DEL', K) end
  end
  if given == nil then return 3 end
  if not mine then return { 0, call('PTTL', K), call('GET', F) or '0', call('GET', K) } end
  return given and { 2, given } or 1
end

-- `first` was popped from W, if K is ours and somebody waits.
local function release(k, a, first)
  if not first then return end_attempt(k, ARGV[a], '') end
  local given = hand_over(KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], first)
  if given and given ~= 0 then return { 2, given } end
  call('DEL', KEYS[k])
  return given == nil and 3 or 1
end

local function abandon(k, a)
  return end_attempt(k, ARGV[a], ARGV[a + 1])
end

local function abandon_unanswered(k, a)
  return end_attempt(k, ARGV[a], ARGV[a + 1], ARGV[a + 2])
end

-- Whether a holder is one of this library.
local function is_ours(holder)
  return holder:match('^%x+ %d+ %d+ %S+ ') and #holder:match('^%x+') == 32
end

-- Takes K from the holder that was seen.
-- keys K F W S   arguments fence seen (0: a holder of another library)
-- answers as release
local function force_release(k, a)
  local K, F, W, S = KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3]
  call('PEXPIRE', F, keep, 'GT')
  local holder, fence = call('GET', K), call('GET', F) or '0'
  if not holder or (is_ours(holder) and fence or '0') ~= ARGV[a] then return { 0, call('PTTL', K), fence, holder } end
  local given = hand_over(K, F, W, S)
  if given and given ~= 0 then return { 2, given } end
  call('DEL', K)
  return given == nil and 3 or 1
end
