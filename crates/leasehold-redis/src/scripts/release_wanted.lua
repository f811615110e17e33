-- The release of a lock that others wait for: gives it to the first of them who is there, as `handover.lua` says. Flat, as
-- `claim_free.lua`: its time is part of every hand-over. PUBLISH comes from `wake_whole.lua` or `wake_sharded.lua`.
-- KEYS K F W S   ARGV id and a space
-- {2, fence}   handed over
-- 1            nobody waits: released
-- nil          any other case: the release of `dispatch.lua` finds out
local call = redis.call
local K, F, W, S = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local holder = call('GET', K)
if not holder or holder:sub(1, 33) ~= ARGV[1] then return nil end
local first = call('ZPOPMIN', W)
local entry, arrival = first[1], first[2]
if not entry then
  call('DEL', K)
  return 1
end
local px, wait, live, channel, id, rest = entry:match('^2 (%d+) (%d+) (%d+) (%S+) (%x+ )(.*)$')
if not px then
  call('ZADD', W, arrival, entry)
  return nil
end
local time = call('TIME')
local us = time[2]
local fence = time[1] .. (#us == 6 and us or ('000000'):sub(1 + #us) .. us)
local seen = call('HGET', S, id)
if seen then call('HDEL', S, id) end
-- Whoever is not there lost its place; the next one's turn comes in the other script.
if (seen and seen + live * 1000 or arrival + math.min(wait, live) * 1000) - fence <= 0 then return nil end
local last = call('SET', F, fence, 'GET')
if last and last - fence >= 0 then
  local is_over = last - 9007199254740991 >= 0
  fence = is_over and last or ('%.0f'):format(last + 1)
  call('SET', F, fence)
  if is_over then return redis.error_reply('FENCE the last fence was given') end
end
call('SET', K, id .. '0' .. fence .. ' ' .. rest, 'PX', px)
if redis.pcall(PUBLISH, channel, id .. fence) == 0 then
  call('SET', K, holder, 'PX', px)
  return nil
end
return { 2, fence }
