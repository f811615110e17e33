-- Fragment: the ends of locks in Redisson's format. Whoever deletes K says so: beside a K that never expires, a waiter of
-- Redisson asks again for nothing else. The message is a number, or Redisson logs an error.
-- 1                  released
-- {0, pttl, text}    was not ours (pttl -2: nobody's); the text as `text_of` has it

local function announce(channel)
  try(PUBLISH, channel, '0')
end

local function not_ours(K, N)
  local holder = N and call('HLEN', K) == 1 and call('HGETALL', K)[1]
  return { 0, call('PTTL', K), text_of(N, holder) }
end

-- A field is that of one attempt, so a release that comes again finds nothing to do.
-- keys K N, or K alone while the slot moves   arguments field, channel
local function release(K, N, a)
  -- Asked before: a node that gives the slot away refuses to look for a K that is gone.
  local is_only = call('HLEN', K) == 1
  if call('HDEL', K, ARGV[a]) == 0 then return not_ours(K, N) end -- first write: passes when memory is full
  if N then call('DEL', N) end
  if is_only then announce(ARGV[a + 1]) end
  return 1
end

-- Takes K from the holder that was seen.
-- keys K N   arguments fence seen (0: a client of Redisson), channel
local function force_release(k, a)
  local K, N = KEYS[k], KEYS[k + 1]
  local holder = holder_of(K)
  call('PEXPIRE', K, '0', 'GT') -- a replica refuses it
  local is_known = holder and (holder == CLOSED or holder:find('^' .. ('[%x%-]'):rep(36) .. ':'))
  local fence = text_of(N, holder):match('^%x+ (%d+) ') or '0'
  if holder and not is_known then error({ err = 'WRONGTYPE it is a hash, and no RLock of Redisson' }) end
  if not holder or fence ~= ARGV[a] then return not_ours(K, N) end
  call('DEL', K, N)
  announce(ARGV[a + 1])
  return 1
end
