-- Fragment: exclusive locks as Redisson has them, shared with its clients. K is a hash with one field, its holder, whose value is
-- how often it came in: ours always once. N has the text of a lock of ours, `<id> <fence> <rest>`, beside K.
local CLOSED = 'leasehold:closed'

-- The only field of K, or nil of a free K; an error if K is something else than a lock like this.
local function holder_of(K)
  local fields = call('HLEN', K)
  if fields == 0 then return nil end
  if fields == 1 then
    local found = call('HGETALL', K)
    if found[1] == CLOSED or found[1]:find(':%-?%d+$') and found[2]:find('^%d+$') then return found[1] end
  elseif call('HEXISTS', K, 'mode') == 1 then
    error({ err = 'WRONGTYPE it is a read-write lock of Redisson, of which only RLock and RFencedLock can be shared' })
  end
  error({ err = 'WRONGTYPE it is a hash, and no RLock of Redisson' })
end

-- The text in N if that is about this field, or '' of a client of Redisson. A closed lock has no field of its holder any more.
local function text_of(N, field)
  local text = field and call('GET', N)
  if text and (field == CLOSED or field:gsub('%-', ''):sub(1, 32) == text:sub(1, 32)) then return text end
  return ''
end

-- Idempotent: the same field again is the same grant, and never counted twice.
-- keys K T N G   arguments field, id and a space, rest of the owner value, px
-- <fence>               granted, or already ours: the ttl is refreshed
-- {3, pttl, text}       busy; the text as `text_of` has it
-- {5}                   this attempt has ended
local function claim(k, a)
  local K, T, N = KEYS[k], KEYS[k + 1], KEYS[k + 2]
  local field, id, rest, px = ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3]
  check_px(px)
  if call('EXISTS', KEYS[k + 3]) == 1 then return { 5 } end
  local holder = holder_of(K)
  if not holder then
    local fence = ('%.0f'):format(call('INCR', T))
    call('HSET', K, field, 1)
    call('PEXPIRE', K, px)
    call('SET', N, id .. fence .. ' ' .. rest, 'PX', px)
    return fence
  end
  if holder == field then
    call('PEXPIRE', K, px)
    call('PEXPIRE', N, px)
    -- While we hold it nobody raises T.
    return text_of(N, field):match('^%x+ (%d+) ') or call('GET', T) or ('%.0f'):format(call('INCR', T))
  end
  call('PEXPIRE', K, '0', 'GT') -- changes nothing, but a replica refuses it instead of answering from old data
  return { 3, call('PTTL', K), text_of(N, holder) }
end

-- Never brings back a lock that is gone.
-- keys K N, or K alone while the slot moves   arguments field, px
-- 1 extended   0 not ours
local function renew(K, N, a)
  local field, px = ARGV[a], ARGV[a + 1]
  check_px(px)
  if call('HEXISTS', K, field) == 0 then
    call('PEXPIRE', K, '0', 'GT') -- as in claim
    return 0
  end
  if N then call('PEXPIRE', N, px) end
  return call('PEXPIRE', K, px)
end

-- Releases a lock that stays closed for a while, by a field that is nobody's. Idempotent.
-- keys K N   arguments field, px, id and a space
-- 1 closed   0 not ours
local function close(k, a)
  local K, N, field, px = KEYS[k], KEYS[k + 1], ARGV[a], ARGV[a + 1]
  check_px(px)
  call('PEXPIRE', K, '0', 'GT') -- changes nothing, but passes when memory is full, and a replica refuses it
  if call('HEXISTS', K, field) == 1 then
    call('HSET', K, CLOSED, 1)
    call('HDEL', K, field)
    call('PEXPIRE', K, px)
    call('PEXPIRE', N, px)
    return 1
  end
  local is_again = call('HEXISTS', K, CLOSED) == 1 and text_of(N, CLOSED):sub(1, 33) == ARGV[a + 2]
  return is_again and 1 or 0
end
