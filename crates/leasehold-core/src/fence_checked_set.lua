-- Writes a value unless a holder with a higher fence has written before.
-- KEYS 1 value  2 highest fence written (same slot as the value)
-- ARGV 1 fence  2 value
-- 1 written   0 too late: a later holder has written
local seen = tonumber(redis.call('GET', KEYS[2]) or '0')
if tonumber(ARGV[1]) < seen then return 0 end
redis.call('SET', KEYS[2], ARGV[1])
redis.call('SET', KEYS[1], ARGV[2])
return 1
