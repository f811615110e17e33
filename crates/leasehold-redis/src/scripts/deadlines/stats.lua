-- How buckets stand. Reads only.
-- KEYS per bucket: due, tries, dead
-- ARGV none
-- {now, {{pending, due, tried, oldest score or false, dead}, ..}}, with a list for each bucket
local seen = {}
for k = 1, #KEYS, 3 do
  local due, tries = KEYS[k], KEYS[k + 1]
  seen[#seen + 1] = {
    call('ZCARD', due),
    call('ZCOUNT', due, '-inf', now),
    call('HLEN', tries) - call('HEXISTS', tries, ''),
    call('ZRANGE', due, 0, 0, 'WITHSCORES')[2] or false,
    call('HLEN', KEYS[k + 2]),
  }
end
return { now, seen }
