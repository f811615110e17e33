-- Fragment: what all others use. The fragments of this folder together are one script; `dispatch.lua` has its KEYS and
-- ARGV. The scripts of records and of a voter use it too.
local call, try, KEYS, ARGV = redis.call, redis.pcall, KEYS, ARGV

-- The server's time in microseconds, as text, because numbers cost a conversion at every command, and as a number.
local now, now_us
local function read_clock()
  local time = call('TIME')
  now = time[1] .. ('000000'):sub(1 + #time[2]) .. time[2]
  now_us = tonumber(now)
end

-- No lease is longer than 999,999,999 ms, about eleven days, whatever a client asks for: a bug must not lock for ever.
local function check_px(px)
  if #px > 9 then error({ err = 'TTL a lease of ' .. px .. ' ms is too long' }) end
end
