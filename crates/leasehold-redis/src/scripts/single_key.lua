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
