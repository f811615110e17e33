-- Fragment: claims from one bucket.
-- KEYS due, tries, context: a node that is about to get the slot and has not all of them must not answer
-- ARGV most, ms of visibility
local call, KEYS = redis.call, KEYS
local first = call('ZRANGE', KEYS[1], '0', '0', 'WITHSCORES')[2]
if not first then return false end
local time = call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
if tonumber(first) > now_ms then return false end
local buckets = { KEYS[1] }
-- Changes nothing, but is a write: what follows passes when memory is full, because to acknowledge gives memory back.
call('PEXPIRE', KEYS[1], '0', 'GT')
