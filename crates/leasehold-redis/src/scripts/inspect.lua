-- What is known about some names. Reads only.
-- KEYS per name: K W, and F where each name has its own
-- ARGV 1 most waiters to list · 2 keys per name
-- per name {holder or false, pttl, fence, number of waiters, {entry, waiting for us, ...}}; holder is 0 for another kind of key
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local found = {}
for k = 1, #KEYS, tonumber(ARGV[2]) do
  local K, W, F = KEYS[k], KEYS[k + 1], ARGV[2] == '3' and KEYS[k + 2]
  local holder = redis.pcall('GET', K)
  if type(holder) == 'table' then holder = 0 end
  local waiters = {}
  local count = call('ZCARD', W)
  if count > 0 and ARGV[1] ~= '0' then
    local entries = call('ZRANGE', W, 0, ARGV[1] - 1, 'WITHSCORES')
    for i = 1, #entries, 2 do
      waiters[i], waiters[i + 1] = entries[i], ('%.0f'):format(math.max(0, now - entries[i + 1]))
    end
  end
  found[#found + 1] = { holder, call('PTTL', K), F and call('GET', F) or '0', count, waiters }
end
return found
