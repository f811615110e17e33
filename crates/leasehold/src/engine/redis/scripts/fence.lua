-- Fragment: fences. A fence is max(last + 1, server time in microseconds), so that it grows after a lost counter and
-- after a clock that went back, unless both happen at once.

-- The next fence of F, which is kept for `keep` ms plus its lead over the clock. The clock was read. Callers have written
-- before, with a command that passes when memory is full, unless the claim itself may fail for lack of memory.
local function next_fence(F)
  local last = call('SET', F, now, 'PX', keep, 'GET')
  local last_us = tonumber(last or 0)
  if last_us < now_us then return now end
  if last_us >= 9007199254740991 then
    call('SET', F, last)
    error({ err = 'FENCE the fence of this name is exhausted' })
  end
  local fence = ('%.0f'):format(last_us + 1)
  call('SET', F, fence, 'PX', ('%.0f'):format(keep + (last_us + 1 - now_us) / 1000))
  return fence
end
