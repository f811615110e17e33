-- Fragment: latches and barriers. The decider of the core, `decide/latch.rs`, is the reference.
-- KEYS of each operation follow each other: D (the latch) · Z (participants by the end of their leases, in µs) · H (all
-- participants) · V (who waits) · G (tombstone of one attempt)
--   D  hash with the FIELDS below; `broken` has a space behind each generation, the last one first
--   Z  of a latch those who have not counted down; of a barrier all parties
--   H  "ARRIVED INDEX HOLDER" of each by its ID: the generation in which it counted down last, and how many were before it
-- D, Z and H are kept for two days after their last use, which is longer than a lease.
-- Operations on a latch answer {generation, ms until the first lease ends or -1, letter, ..}; generation 0: there is none
--   j joined  f full  c {index, again, missing} counted  l left  r armed again  g another generation  s a stranger
--   a {missing} armed  o open  b {holder data or ''} broken
-- and {9, error}, where KIND and COUNT name what is stored instead.
local KEPT = '172800000'
local PARTIES_MAX = 10000
local PARTIES_SHOWN = 100
local BROKEN_MAX = 16
local FIELDS = { 'kind', 'count', 'generation', 'phase', 'counted', 'previous', 'floor', 'broken', 'broken_by' }

local function whole(number)
  return ('%.0f'):format(number)
end

-- When a lease that begins now ends.
local function end_of(px)
  return whole(now_us + px * 1000)
end

-- What is known of a participant: ARRIVED, INDEX and HOLDER; nothing of a stranger.
local function party(k, id)
  return (call('HGET', KEYS[k + 2], id) or ''):match('^(%d+) (%d+) (.*)$')
end

local function keep(k)
  for i = k, k + 2 do call('PEXPIRE', KEYS[i], KEPT) end
end

local function write(k, latch)
  local values = {}
  for i, field in ipairs(FIELDS) do
    values[2 * i - 1], values[2 * i] = field, latch[field]
  end
  call('HSET', KEYS[k], unpack(values))
  keep(k)
end

local function forget_parties(k)
  call('DEL', KEYS[k + 1], KEYS[k + 2])
end

-- Nobody waits for it any more: its generation is over.
local function write_and_tell(k, latch)
  write(k, latch)
  tell(take_watchers(KEYS[k + 3]))
end

local function break_by(k, latch, who)
  forget_parties(k)
  latch.phase, latch.broken_by, latch.first_ms = 'broken', who, -1
  latch.broken = latch.generation .. ' ' .. latch.broken
  local kept, oldest = latch.broken:match('^(' .. ('%d+ '):rep(BROKEN_MAX) .. ')(%d+) $')
  if kept then
    latch.broken, latch.floor = kept, oldest
  end
  write_and_tell(k, latch)
end

local function begin_generation(latch, after)
  latch.previous, latch.generation = after, whole(math.max(now_us, after + 1))
  latch.phase, latch.counted = 'armed', '0'
end

-- A new latch, which is not written yet. It may have been armed at the server before this one.
local function arm(kind, count)
  if grace_ms > 0 then
    error({ err = ('GRACE the primary is new: nothing is begun for %d ms'):format(grace_ms) })
  end
  local latch = { kind = kind, count = count, broken = '', broken_by = '', first_ms = -1 }
  begin_generation(latch, '0')
  latch.floor = whole(latch.generation - 1)
  return latch
end

-- The latch as it is now, if there is one: a lease that has ended breaks it.
local function read(k, kind)
  local found = call('HMGET', KEYS[k], unpack(FIELDS))
  if not found[1] then return nil end
  local latch = { first_ms = -1 }
  for i, field in ipairs(FIELDS) do latch[field] = found[i] end
  if kind and latch.kind ~= kind then error({ err = 'KIND ' .. latch.kind }) end
  local first = latch.phase == 'armed' and call('ZRANGE', KEYS[k + 1], 0, 0, 'WITHSCORES') or {}
  if first[1] then
    local left_us = first[2] - now_us
    latch.first_ms = math.ceil(left_us / 1000)
    if left_us <= 0 then
      local _, _, who = party(k, first[1])
      break_by(k, latch, who or '')
    end
  end
  return latch
end

local function check_count(latch, count)
  if tonumber(count) > PARTIES_MAX then error({ err = 'PARTIES there are at most ' .. PARTIES_MAX }) end
  if latch.phase == 'armed' and latch.count ~= count then error({ err = 'COUNT ' .. latch.count }) end
end

local function answer(latch, ...)
  return { latch and latch.generation or '0', latch and latch.first_ms or -1, ... }
end

-- How a generation stands: a letter, and what belongs to it.
local function standing(latch, generation)
  local is_known = generation - latch.floor > 0 and generation - latch.generation <= 0
  if not is_known or (' ' .. latch.broken):find(' ' .. generation .. ' ', 1, true) then
    local is_last = latch.broken:match('^%d+') == generation
    return 'b', is_last and latch.broken_by or ''
  end
  if generation == latch.generation and latch.phase == 'armed' then return 'a', latch.count - latch.counted end
  return 'o'
end

-- keys D Z H V G   arguments kind, count, id, holder data, px
local function join(k, a)
  local kind, count, id, holder, px = ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], ARGV[a + 4]
  check_px(px)
  if call('EXISTS', KEYS[k + 4]) == 1 then return { 5 } end
  local latch = read(k, kind) or arm(kind, count)
  check_count(latch, count)
  if latch.phase ~= 'armed' then return answer(latch, standing(latch, latch.generation)) end
  if party(k, id) then
    call('ZADD', KEYS[k + 1], 'XX', end_of(px), id)
  elseif call('HLEN', KEYS[k + 2]) >= tonumber(count) then
    return answer(latch, 'f')
  else
    call('HSET', KEYS[k + 2], id, '0 0 ' .. holder)
    call('ZADD', KEYS[k + 1], end_of(px), id)
  end
  write(k, latch)
  return answer(latch, 'j')
end

-- keys D Z H V   arguments kind, count, id, generation
local function count_down(k, a)
  local kind, count, id, generation = ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3]
  keep(k) -- first write: passes when memory is full, and a replica refuses it
  local latch = read(k, kind)
  if not latch then return answer(latch, 'b', '') end
  check_count(latch, count)
  local arrived, index, holder = party(k, id)
  local is_present = generation == latch.generation
  if arrived == generation then
    return answer(latch, 'c', tonumber(index), 1, is_present and latch.count - latch.counted or 0)
  end
  if not arrived or not is_present then
    local letter, about = standing(latch, generation)
    if letter == 'a' then return answer(latch, 's') end
    return answer(latch, letter, about)
  end
  index, latch.counted = latch.counted, whole(latch.counted + 1)
  call('HSET', KEYS[k + 2], id, generation .. ' ' .. index .. ' ' .. holder)
  if kind == 'latch' then call('ZREM', KEYS[k + 1], id) end
  local missing = latch.count - latch.counted
  if missing > 0 then
    write(k, latch)
    return answer(latch, 'c', tonumber(index), 0, missing)
  end
  if kind == 'latch' then
    latch.phase, latch.first_ms = 'open', -1
    forget_parties(k)
  else
    begin_generation(latch, generation)
  end
  write_and_tell(k, latch)
  return answer(latch, 'c', tonumber(index), 0, 0)
end

-- keys D Z H V G   arguments kind, id, 1 if that breaks it, ms to keep a tombstone ('': none): for one of which a copy of the
-- request to join is unanswered and may still come
local function leave(k, a)
  local kind, id, breaks, tombstone_ms = ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3]
  keep(k) -- first write, as in count_down
  if tombstone_ms ~= '' then call('SET', KEYS[k + 4], 1, 'PX', tombstone_ms) end
  local latch = read(k, kind)
  local arrived, _, holder = party(k, id)
  if not latch or not arrived then return answer(latch, 'l') end
  local has_counted = arrived == latch.generation
  if has_counted and kind == 'latch' then return answer(latch, 'l') end
  if has_counted or breaks == '1' then
    break_by(k, latch, holder)
  else
    call('HDEL', KEYS[k + 2], id)
    call('ZREM', KEYS[k + 1], id)
  end
  return answer(latch, 'l')
end

-- keys D Z H V   arguments kind, count, generation ('': the present one), "CHANNEL ID" to be told ('': nobody)
local function look(k, a)
  local kind, count, generation, watcher = ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3]
  local latch = read(k, kind)
  if not latch then
    if generation ~= '' then return answer(latch, 'b', '') end
    latch = arm(kind, count)
    check_count(latch, count)
    write(k, latch)
  end
  check_count(latch, count)
  keep(k) -- also a write that a replica refuses, instead of answering from old data
  local letter, about = standing(latch, generation == '' and latch.generation or generation)
  if letter == 'a' and watcher ~= '' and call('SCARD', KEYS[k + 3]) < WATCHERS_MAX then
    call('SADD', KEYS[k + 3], watcher)
    -- Whoever still waits asks again by then.
    call('PEXPIRE', KEYS[k + 3], '60000')
  end
  return answer(latch, letter, about)
end

-- keys D Z H V   arguments kind, count, generation
local function rearm(k, a)
  local kind, count, generation = ARGV[a], ARGV[a + 1], ARGV[a + 2]
  keep(k) -- first write, as in count_down
  local latch = read(k, kind)
  if not latch then return answer(latch, 'g') end
  check_count(latch, count)
  if generation ~= latch.generation then
    local is_done = latch.phase == 'armed' and generation == latch.previous and generation ~= '0'
    return answer(latch, is_done and 'r' or 'g')
  end
  if latch.phase == 'armed' then return answer(latch, standing(latch, generation)) end
  forget_parties(k)
  begin_generation(latch, generation)
  latch.count = count
  write(k, latch)
  return answer(latch, 'r')
end

-- Extends the lease of a participant in Z alone, which works while its slot is moving. Never brings one back.
-- keys Z   arguments id, px
-- 1 extended   0 not ours
local function move_end(k, a)
  local Z, id, px = KEYS[k], ARGV[a], ARGV[a + 1]
  check_px(px)
  local ends = call('ZSCORE', Z, id)
  if not ends or ends - now_us <= 0 then
    call('PEXPIRE', Z, '0', 'GT') -- changes nothing, but a replica refuses it instead of answering "not ours"
    return 0
  end
  call('PEXPIRE', Z, KEPT)
  call('ZADD', Z, 'XX', end_of(px), id)
  return 1
end

-- keys D Z H   arguments id, px
local function renew(k, a)
  local renewed = move_end(k + 1, a)
  if renewed == 1 then keep(k) end
  return renewed
end

-- keys D Z H V
-- {generation, ms, kind, count, participants, letter, about or '', then of some participants generation of arrival, holder data,
-- and ms that are left or -1}; nothing but {'0'} if there is none
local function show(k)
  local latch = read(k)
  if not latch then return { '0' } end
  local letter, about = standing(latch, latch.generation)
  local joined = call('HLEN', KEYS[k + 2])
  local shown = answer(latch, latch.kind, tonumber(latch.count), joined, letter, about or '')
  local found = call('HSCAN', KEYS[k + 2], 0, 'COUNT', PARTIES_SHOWN)[2]
  for i = 1, math.min(#found, 2 * PARTIES_SHOWN), 2 do
    local arrived, _, holder = found[i + 1]:match('^(%d+) (%d+) (.*)$')
    local ends = call('ZSCORE', KEYS[k + 1], found[i])
    shown[#shown + 1] = arrived
    shown[#shown + 1] = holder
    shown[#shown + 1] = ends and math.ceil((ends - now_us) / 1000) or -1
  end
  return shown
end

-- What `cases.lua` runs: by its letter each operation, how many keys it has, and how many arguments, the letter included.
local CASES = {
  j = { join, 5, 6 },
  c = { count_down, 4, 5 },
  l = { leave, 5, 5 },
  w = { look, 4, 5 },
  r = { rearm, 4, 4 },
  n = { renew, 3, 3 },
  m = { move_end, 1, 3 },
  s = { show, 4, 1 },
}
