-- Fragment: the fences of a voter. A client proposes one, so that all nodes can give the same; the node only makes sure
-- that it never gives one twice. F has the highest fence of its name and, once readers came after the last writer, the
-- highest one before them: a reader that this node has lost may come back while no writer was here since.

-- The highest fence of F, and the highest one that a writer may have been given.
local function read_fences(F)
  local last, before = (call('GET', F) or '0'):match('^(%d+) ?(%d*)$')
  return tonumber(last), tonumber(before) or tonumber(last)
end

-- Writes the fence of F, a number; that of a reader with the highest one that a writer may have been given. F is kept for `keep`
-- ms plus its lead over the clock, H is the highest of all names. The clock was read.
local function set_fence(F, H, fence, before)
  if fence >= 9007199254740992 then error({ err = 'FENCE the fence of this name is exhausted' }) end
  local text = ('%.0f'):format(fence)
  local kept = ('%.0f'):format(keep + math.max(0, fence - now_us) / 1000)
  call('SET', F, before and text .. (' %.0f'):format(before) or text, 'PX', kept)
  if tonumber(call('GET', H) or 0) < fence then call('SET', H, text) end
  return text
end
