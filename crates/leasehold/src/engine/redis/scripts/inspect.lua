-- What is known about some names. Reads only.
-- KEYS per name: K F W
-- ARGV 1 most waiters to list
-- per name {holder or false, pttl, fence, number of waiters, {entry, waiting for us, ...}}; holder is 0 for another kind of key
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local found = {}
for k = 1, #KEYS, 3 do
  local holder = redis.pcall('GET', KEYS[k])
  if type(holder) == 'table' then holder = 0 end
  local waiters = {}
  local count = redis.call('ZCARD', KEYS[k + 2])
  if count > 0 and ARGV[1] ~= '0' then
    local entries = redis.call('ZRANGE', KEYS[k + 2], 0, ARGV[1] - 1, 'WITHSCORES')
    for i = 1, #entries, 2 do
      waiters[i], waiters[i + 1] = entries[i], ('%.0f'):format(math.max(0, now - entries[i + 1]))
    end
  end
  found[#found + 1] = { holder, redis.call('PTTL', KEYS[k]), redis.call('GET', KEYS[k + 1]) or '0', count, waiters }
end
return found
