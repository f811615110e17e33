-- Fragment: ends an execution.
-- settle              keys K F V     arguments owner, fence, text to keep ('': remove it), ms to keep it
-- settle_unanswered   keys K F V G   the same, and ms to keep the tombstone; for an attempt of which a copy of the wish to
--                     begin is unanswered and may still come
-- settle_alone        keys K         arguments owner, text, ms; while the keys of a slot are on two nodes
-- 1                       it stands
-- {text or false, last}   not ours any more: what is there instead, and the last fence
local function keep_outcome(K, text, ms)
  if text == '' then
    call('DEL', K)
  else
    call('SET', K, text, 'PX', ms)
  end
end

local function settle(k, a)
  local K, F, V = KEYS[k], KEYS[k + 1], KEYS[k + 2]
  local found = call('GET', K)
  if not is_run_by(found, ARGV[a]) then
    call('PEXPIRE', F, keep, 'GT') -- a write in any case, as in a renewal
    local last = call('GET', F) or '0'
    -- Late, or forgotten, but nobody has begun since: it counts.
    if found or tonumber(last) > tonumber(ARGV[a + 1]) then return { found, last } end
  end
  local watchers = take_watchers(V)
  keep_outcome(K, ARGV[a + 2], ARGV[a + 3])
  tell(watchers)
  return 1
end

local function settle_unanswered(k, a)
  call('PEXPIRE', KEYS[k], 0, 'GT') -- first write: passes when memory is full, and a replica refuses it
  call('SET', KEYS[k + 3], 1, 'PX', ARGV[a + 4])
  return settle(k, a)
end

local function settle_alone(k, a)
  local K = KEYS[k]
  if not is_run_by(call('GET', K), ARGV[a]) then
    error({ err = 'TRYAGAIN the last fence of this record may be on another node' })
  end
  call('PEXPIRE', K, 0, 'GT')
  keep_outcome(K, ARGV[a + 1], ARGV[a + 2])
  return 1
end

-- Removes whatever is there, for operators. F stays: a later execution has a higher fence.
-- keys K V
-- 1 removed   0 there was nothing
local function remove(k)
  local watchers = take_watchers(KEYS[k + 1])
  local removed = call('DEL', KEYS[k])
  tell(watchers)
  return removed
end
