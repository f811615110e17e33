-- What is due, oldest first within a bucket. Reads only.
-- KEYS per bucket: due, tries
-- ARGV most per bucket
-- {now, {id, score, attempts, ..}}
local PART = 500 -- arguments are unpacked in parts, because Lua's stack is bounded
local list = {}
for k = 1, #KEYS, 2 do
  local found = call('ZRANGEBYSCORE', KEYS[k], '-inf', now, 'WITHSCORES', 'LIMIT', 0, ARGV[1])
  for first = 1, #found, 2 * PART do
    local ids = {}
    for i = first, math.min(first + 2 * PART, #found) - 1, 2 do
      ids[#ids + 1] = found[i]
    end
    for n, tried in ipairs(call('HMGET', KEYS[k + 1], unpack(ids))) do
      list[#list + 1] = ids[n]
      list[#list + 1] = found[first + 2 * n - 1]
      list[#list + 1] = tried and tonumber(tried:match('^%d+')) or 0
    end
  end
end
return { now, list }
