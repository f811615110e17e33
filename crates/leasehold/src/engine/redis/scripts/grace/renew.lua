-- Fragment for clients with a grace: renewal. Until it is over, a holder whom this server forgot is written down again,
-- unless the fence tells that somebody came after it.
-- keys K F   arguments owner, px, fence
-- 1 extended   0 not ours
local function renew_or_assert(k, a)
  local K, F, owner, px, fence = KEYS[k], KEYS[k + 1], ARGV[a], ARGV[a + 1], ARGV[a + 2]
  local holder = call('GET', K)
  if grace_ms <= 0 or holder == owner then return renew(k, a) end
  check_px(px)
  call('PEXPIRE', F, keep, 'GT') -- a write in either case, as in a renewal
  local last, mine = tonumber(call('GET', F) or 0), tonumber(fence)
  -- A holder with an earlier fence gave it back to the old server, which told nobody. One of another library has no
  -- fence, so nobody knows when it came.
  if last > mine or mine == 0 then return 0 end
  if holder and (last == mine or not is_ours(holder)) then return 0 end
  call('SET', F, fence, 'PX', ('%.0f'):format(keep + math.max(0, mine - now_us) / 1000))
  call('SET', K, owner, 'PX', px)
  return 1
end
