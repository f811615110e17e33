-- Fragment for clients with a grace: what is left of it. KEYS 1 leasehold:grace, 2 leasehold:era, 3 leasehold:graces;
-- ARGV 1 the identity of the server that this connection was made to, 2 the ms of grace that this client needs.
-- Another era means that the data came from another server since then, or is gone: nothing may be concluded from it.
if call('GET', KEYS[2]) ~= ARGV[1] then
  return redis.error_reply('ERA the data of this server changed; a new connection finds out how')
end
local grace_ms = call('PTTL', KEYS[1])
read_clock()
-- The next primary must know of it while anything that we take now may last. If memory is full, it is tried again.
local known_until, needed_us = call('ZSCORE', KEYS[3], ARGV[2]), ARGV[2] * 1000
if not known_until or known_until - now_us < needed_us / 2 then
  try('ZADD', KEYS[3], ('%.0f'):format(now_us + needed_us), ARGV[2])
end
-- Where the first operation has its keys and its letter.
local k, a = 4, 3
