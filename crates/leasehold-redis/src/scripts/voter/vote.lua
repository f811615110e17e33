-- A vote. Idempotent for its owner. A writer gets it while nobody else has one, a reader while no writer has one; in both cases
-- whoever waits and came before goes first, but for readers, who do not wait for each other.
-- KEYS K F W S Z H as elsewhere · G tombstone of this attempt · Q the node's record · T highest fence · L floor of fences
-- ARGV 1 how long F is kept in ms · 2 owner · 3 px · 4 hint: the fence that is asked for · 5 expected record
--      6 entry that waits ('': asks once) · 7 its arrival · 8 's' for a reader
-- <fence>                     yes, or already ours: the ttl is refreshed
-- {3, pttl, fence, holder, ahead, readers}   no; without a holder: another attempt waits and comes first; of several readers
--                             the holder is the one whose lease lasts longest
-- {4}                         too many wait
-- {5}                         this attempt has ended
-- {8, record or false}        has another record than expected
local WAITERS_MAX = 10000
local HINT_MAX_US = 60000000

local K, F, W, S, Z, H, G, Q, T, L = unpack(KEYS)
local owner, px, hint, expected, entry, arrival = ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6], ARGV[7]
local id, reads = owner:sub(1, 32), ARGV[8] == 's'

-- A refusal writes too, so that a replica refuses instead of answering from old data.
local function refuse(answer)
  call('PEXPIRE', F, keep, 'GT')
  return answer
end

local function next_fence()
  if math.abs(hint - now_us) > HINT_MAX_US then
    error({ err = 'HINT the clocks of this client and of the node differ by more than 60 s' })
  end
  local last, before = read_fences(F)
  local floor = tonumber(call('GET', L) or 0)
  return set_fence(F, T, math.max(last + 1, floor + 1, hint), reads and before)
end

check_px(px)
if call('EXISTS', G) == 1 then return refuse({ 5 }) end
local data, most = read_record(Q, expected)
if not data then return refuse({ 8, call('GET', Q) }) end
check_longest(px, most)

read_clock()
local holder = without_expired(call('GET', K), K, Z, H)
local first, channel, first_id, mine, is_open
if reads then
  mine = fence_of_reader(holder, H, owner)
  is_open = not mine and (not holder or holder == SHARED) and not writer_waits(W, S, entry)
else
  mine = is_held_by(holder, owner)
end
if not holder and not is_open then
  first, channel, first_id = next_waiter(W, S, 0)
  is_open = not reads and (not first or first == entry)
end
if mine or is_open then
  if not is_data_set(data) then return refuse({ 8, expected }) end
  if mine and not reads then
    call('PEXPIRE', K, px)
    return last_fence(F) or next_fence()
  end
  local fence = mine or next_fence()
  if reads then
    write_reader(holder, K, Z, H, owner, fence, px)
  else
    call('SET', K, held_text(owner, fence), 'PX', px)
  end
  if entry ~= '' and not mine then
    call('ZREM', W, entry)
    call('HDEL', S, id)
  end
  return fence
end

if first then wake(channel, first_id) end
local no = { 3, call('PTTL', K), last_fence(F) or '0', holder, 0, 0 }
if holder == SHARED then
  local last = call('ZRANGE', Z, -1, -1, 'WITHSCORES')
  local fence, rest = (call('HGET', H, last[1]:sub(1, 33)) or ''):match('^(%d+) 0( .*)$')
  no[2], no[6] = math.ceil((last[2] - now_us) / 1000), call('ZCARD', Z)
  no[4] = fence and last[1]:sub(1, 33) .. fence .. rest or ''
end
if entry == '' then return refuse(no) end
if call('ZSCORE', W, entry) then
  call('PEXPIRE', W, 86400000) -- first write: passes when memory is full, and a replica refuses it
else
  if call('ZCARD', W) >= WAITERS_MAX then return refuse({ 4 }) end
  call('ZADD', W, arrival, entry)
  call('PEXPIRE', W, 86400000)
end
call('HSET', S, id, now)
call('PEXPIRE', S, 86400000)
no[5] = call('ZRANK', W, entry)
return no
