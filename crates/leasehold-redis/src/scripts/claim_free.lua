-- The ordinary claim: of a lock that nobody holds or waits for, by an attempt that has not ended. Flat, because making a
-- function takes longer than a command.
-- KEYS K F W G   ARGV id and a space, rest of the owner value, px
-- <fence>   granted
-- nil       any other case: nothing was done, and the claim of `dispatch.lua` finds out
local call = redis.call
local K, F, px = KEYS[1], KEYS[2], ARGV[3]
if call('EXISTS', K, KEYS[3], KEYS[4]) ~= 0 or #px > 9 then return nil end
local time = call('TIME')
local us = time[2]
local fence = time[1] .. (#us == 6 and us or ('000000'):sub(1 + #us) .. us)
local last = call('SET', F, fence, 'GET')
if last and last - fence >= 0 then
  if last - 9007199254740991 >= 0 then
    call('SET', F, last)
    return redis.error_reply('FENCE the last fence was given')
  end
  fence = ('%.0f'):format(last + 1)
  call('SET', F, fence)
end
call('SET', K, ARGV[1] .. fence .. ' ' .. ARGV[2], 'PX', px)
return fence
