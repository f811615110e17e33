-- Fragment: what takes one key only. While a slot is moving to another node of a cluster the keys of a name may be on both,
-- and a script that names several of them is refused; what a holder needs goes on key by key.

-- Releases a lock that stays closed for a while. K keeps its fence and its holder data under an id that is nobody's: a
-- renewal or a claim that was on its way changes nothing any more. Idempotent.
-- keys K   arguments id and a space, rest of the owner value, fence, px
-- 1 closed   0 not ours
local function close(k, a)
  local K, px = KEYS[k], ARGV[a + 3]
  check_px(px)
  local held = ARGV[a + 2] .. ' ' .. ARGV[a + 1]
  local closed = ('0'):rep(32) .. ' ' .. held
  local found = call('GET', K)
  call('PEXPIRE', K, '0', 'GT') -- changes nothing, but passes when memory is full, and a replica refuses it
  local unmarked = found and found:gsub('^(%x+ )0', '%1')
  if unmarked ~= ARGV[a] .. held and found ~= closed then return 0 end
  call('SET', K, closed, 'PX', px)
  return 1
end

-- keys K   arguments id and a space
-- answers as release; nobody is handed the lock: who waits finds it free at its next poll
local function release_alone(k, a)
  local K = KEYS[k]
  call('PEXPIRE', K, '0', 'GT') -- as in close
  local holder = call('GET', K)
  if holder and holder:sub(1, 33) == ARGV[a] then return call('DEL', K) end
  return { 0, call('PTTL', K), holder }
end

-- Renews a member in Z, or with 0 ms ends its lease: whoever looks for room next takes it out.
-- keys Z   arguments id and a space, take, px
-- 1 done   0 not ours
local function move_end(k, a)
  local Z, member, px = KEYS[k], ARGV[a] .. ARGV[a + 1], ARGV[a + 2]
  check_px(px)
  local ends = call('ZSCORE', Z, member)
  call('PEXPIRE', Z, px, 'GT')
  if not ends or ends - now_us <= 0 then return 0 end
  call('ZADD', Z, 'XX', px == '0' and '0' or ('%.0f'):format(now_us + px * 1000), member)
  return 1
end

-- Lets a K that has members last at least so long.
-- keys K   arguments px
-- 1 done   0 it has none
local function move_last_end(k, a)
  check_px(ARGV[a])
  local text = call('GET', KEYS[k])
  call('PEXPIRE', KEYS[k], ARGV[a], 'GT')
  return text and text:find('^leasehold:[sp]') and 1 or 0
end
