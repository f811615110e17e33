-- A vote. Idempotent for its owner.
-- KEYS K F W S as elsewhere · G tombstone of this attempt · Q the node's record · H highest fence · L floor of fences
-- ARGV 1 how long F is kept in ms · 2 owner · 3 px · 4 hint: the fence that is asked for · 5 expected record
--      6 entry that waits ('': asks once) · 7 its arrival
-- <fence>                     yes, or already ours: the ttl is refreshed
-- {3, pttl, fence, holder, ahead}   no; without a holder: another attempt waits and comes first
-- {4}                         too many wait
-- {5}                         this attempt has ended
-- {8, record or false}        has another record than expected
local WAITERS_MAX = 10000
local HINT_MAX_US = 60000000

local K, F, W, S, G, Q, H, L = unpack(KEYS)
local owner, px, hint, expected, entry, arrival = ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6], ARGV[7]
local id = owner:sub(1, 32)

-- A refusal writes too, so that a replica refuses instead of answering from old data.
local function refuse(answer)
  call('PEXPIRE', F, keep, 'GT')
  return answer
end

local function next_fence()
  if math.abs(hint - now_us) > HINT_MAX_US then
    error({ err = 'HINT the clocks of this client and of the node differ by more than 60 s' })
  end
  local last, floor = tonumber(call('GET', F) or 0), tonumber(call('GET', L) or 0)
  return set_fence(F, H, math.max(last + 1, floor + 1, hint))
end

check_px(px)
if call('EXISTS', G) == 1 then return refuse({ 5 }) end
local data, most = read_record(Q, expected)
if not data then return refuse({ 8, call('GET', Q) }) end
check_longest(px, most)

read_clock()
local holder = call('GET', K)
local first, channel, first_id
if not holder then first, channel, first_id = first_waiter(W, S) end
local mine = is_held_by(holder, owner)
if mine or not holder and (not first or first == entry) then
  if not is_data_set(data) then return refuse({ 8, expected }) end
  if holder then
    call('PEXPIRE', K, px)
    return call('GET', F) or next_fence()
  end
  local fence = next_fence()
  call('SET', K, held_text(owner, fence), 'PX', px)
  if entry ~= '' then
    call('ZREM', W, entry)
    call('HDEL', S, id)
  end
  return fence
end

if first then wake(channel, first_id) end
local no = { 3, call('PTTL', K), call('GET', F) or '0', holder, 0 }
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
