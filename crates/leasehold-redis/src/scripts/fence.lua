-- Fragment: fences. A fence is max(last + 1, server time in microseconds), so that it grows after a lost counter and
-- after a clock that went back, unless both happen at once.

-- The next fence of F. The clock was read. Callers have written before, with a command that passes when memory is full,
-- unless the claim itself may fail for lack of memory.
local function next_fence(F)
  local last = call('SET', F, now, 'GET')
  if not last or last - now_us < 0 then return now end
  if last - 9007199254740991 >= 0 then
    call('SET', F, last)
    error({ err = 'FENCE the last fence was given' })
  end
  local fence = ('%.0f'):format(last + 1)
  call('SET', F, fence)
  return fence
end
