-- A client comes to a primary. If nobody with a grace met this run of it and its data before, it was promoted, restarted
-- or wiped, or it is new, and may have forgotten who holds what: for a while nothing new is granted. A new one waits too,
-- because it cannot be told from one that has lost everything.
-- KEYS leasehold:era (whom the last arrival met) · leasehold:grace (exists while nothing is granted) ·
--      leasehold:grace:ms (the longest grace that any client asked for)
-- ARGV the server's identity, ms of grace
-- 1 a new era begins   0 the same as before
local call = redis.call
local ms = ARGV[2] + 0
local longest = tonumber(call('GET', KEYS[3]) or 0)
if ms > longest then
  call('SET', KEYS[3], ARGV[2])
  -- The present grace was too short for this client.
  local left = call('PTTL', KEYS[2])
  if left > 0 then call('PEXPIRE', KEYS[2], ('%.0f'):format(left + ms - longest)) end
else
  ms = longest
end
if call('GET', KEYS[1]) == ARGV[1] then return 0 end
call('SET', KEYS[2], ARGV[1], 'PX', ('%.0f'):format(ms))
call('SET', KEYS[1], ARGV[1])
return 1
