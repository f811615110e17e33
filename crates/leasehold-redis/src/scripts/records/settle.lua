-- Fragment: ends an execution.
-- settle              keys K B V     arguments owner, fence, text to keep ('': remove it), ms to keep it
-- settle_unanswered   keys K B V G   the same, and ms to keep the tombstone; for an attempt of which a copy of the request
--                     to begin is unanswered and may still come
-- 1                       it stands
-- {text or false, last}   not ours any more: what is there instead, and the last fence
local function settle(k, a)
  local K, B = KEYS[k], KEYS[k + 1]
  local found = call('GET', K)
  call('PEXPIRE', K, '0', 'GT') -- first write: passes when memory is full, and a replica refuses it
  if not is_run_by(found, ARGV[a]) then
    local last = call('GET', B) or '0'
    -- Late, or forgotten, but nobody has begun since: it counts.
    if found or tonumber(last) > tonumber(ARGV[a + 1]) then return { found, last } end
  end
  local watchers = take_watchers(KEYS[k + 2])
  if ARGV[a + 2] == '' then
    call('DEL', K)
  else
    call('SET', K, ARGV[a + 2], 'PX', ARGV[a + 3])
  end
  tell(watchers)
  return 1
end

local function settle_unanswered(k, a)
  call('PEXPIRE', KEYS[k], '0', 'GT') -- first write, as in settle
  call('SET', KEYS[k + 3], 1, 'PX', ARGV[a + 4])
  return settle(k, a)
end

-- Removes whatever is there, for operators. B stays: a later execution has a higher fence.
-- keys K V
-- 1 removed   0 there was nothing
local function remove(k)
  local watchers = take_watchers(KEYS[k + 1])
  local removed = call('DEL', KEYS[k])
  tell(watchers)
  return removed
end
