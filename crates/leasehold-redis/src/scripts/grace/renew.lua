-- Fragment for clients with a grace: renewal. Until it is over, a holder whom this server forgot is written down again,
-- unless somebody came after it.
-- keys K F   arguments id and a space, rest of the owner value, px, fence
-- 1 extended   0 not ours
local function renew(k, a)
  local K, F, id, px, fence = KEYS[k], KEYS[k + 1], ARGV[a], ARGV[a + 2], ARGV[a + 3]
  check_px(px)
  local holder = call('GET', K)
  call('PEXPIRE', K, '0', 'GT') -- changes nothing, but a replica refuses it instead of answering "not ours"
  if holder and holder:sub(1, 33) == id then
    call('PEXPIRE', K, px)
    return 1
  end
  -- A holder with an earlier fence gave it back to the old server, which told nobody. One of another library has no
  -- fence, so nobody knows when it came.
  local theirs, mine = holder and fence_of(holder) or 1, tonumber(fence)
  if grace_ms <= 0 or theirs == 0 or theirs - mine >= 0 then return 0 end
  if tonumber(call('GET', F) or 0) < mine then call('SET', F, fence) end
  call('SET', K, id .. '0' .. fence .. ' ' .. ARGV[a + 1], 'PX', px) -- marked: others may wait
  return 1
end
