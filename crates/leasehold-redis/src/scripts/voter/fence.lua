-- Fragment: the fences of a voter. A client proposes one, so that all nodes can give the same; the node only makes sure
-- that it never gives one twice.

-- Writes the fence of F, a number. F is kept for `keep` ms plus its lead over the clock, H is the highest of all names.
-- The clock was read.
local function set_fence(F, H, fence)
  if fence >= 9007199254740992 then error({ err = 'FENCE the fence of this name is exhausted' }) end
  local text = ('%.0f'):format(fence)
  call('SET', F, text, 'PX', ('%.0f'):format(keep + math.max(0, fence - now_us) / 1000))
  if tonumber(call('GET', H) or 0) < fence then call('SET', H, text) end
  return text
end
