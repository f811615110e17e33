-- Fragment for clients with a grace: claim. Until it is over, a lock that looks free may be held by somebody whom this
-- server forgot. Keys, arguments and answers as claim.
local claim_now = claim
local function claim(k, a)
  if grace_ms <= 0 then return claim_now(k, a) end
  check_px(ARGV[a + 1])
  if call('EXISTS', KEYS[k + 4]) == 1 then return { 5 } end
  local holder = call('GET', KEYS[k])
  if holder == ARGV[a] then return refresh(k, a) end
  return wait_for(k, a, holder, math.max(grace_ms, call('PTTL', KEYS[k])))
end
