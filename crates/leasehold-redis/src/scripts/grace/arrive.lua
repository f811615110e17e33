-- A client comes to a primary. If nobody with a grace met this run of it and its data before, it was promoted, restarted
-- or wiped, or it is new, and may have forgotten who holds what: for a while nothing new is granted. A new one waits too,
-- because it cannot be told from one that has lost everything.
-- KEYS leasehold:era (whom the last arrival met) · leasehold:grace (exists while nothing is granted) ·
--      leasehold:graces (the ms of grace that clients asked for, each until it is as long ago as it is long)
-- ARGV the server's identity, ms of grace
-- 1 a new era begins   0 the same as before
local call = redis.call
local time, ms = call('TIME'), tonumber(ARGV[2])
local now_us = time[1] * 1000000 + time[2]
call('ZREMRANGEBYSCORE', KEYS[3], '-inf', ('%.0f'):format(now_us))
local others = 0
for _, other in ipairs(call('ZRANGE', KEYS[3], 0, -1)) do
  others = math.max(others, other)
end
call('ZADD', KEYS[3], ('%.0f'):format(now_us + ms * 1000), ARGV[2])
if call('GET', KEYS[1]) ~= ARGV[1] then
  call('SET', KEYS[2], ARGV[1], 'PX', ('%.0f'):format(math.max(ms, others)))
  call('SET', KEYS[1], ARGV[1])
  return 1
end
-- The present grace may be too short for this client.
local left = call('PTTL', KEYS[2])
if left > 0 and ms > others then call('PEXPIRE', KEYS[2], ('%.0f'):format(left + ms - others)) end
return 0
