-- Fragment: fences. A fence is max(last + 1, server time in microseconds), so that it grows after a lost counter and
-- after a clock that went back, unless both happen at once.

-- The next fence of F, which is kept for `keep` ms plus its lead over the clock. Callers have written before, with a
-- command that passes when memory is full, unless the claim itself may fail for lack of memory.
local function next_fence(F)
  local last = tonumber(call('GET', F) or 0)
  if last < now_us then
    call('SET', F, now, 'PX', keep)
    return now
  end
  if last >= 9007199254740991 then error({ err = 'FENCE the fence of this name is exhausted' }) end
  local fence = ('%.0f'):format(last + 1)
  call('SET', F, fence, 'PX', ('%.0f'):format(keep + (last + 1 - now_us) / 1000))
  return fence
end
