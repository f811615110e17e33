-- What is due, oldest first. Reads only.
-- KEYS per bucket: due, tries
-- ARGV most per bucket
-- {now, {id, score, attempts, ..}, ..}
local seen = { now }
for k = 1, #KEYS, 2 do
  local found = call('ZRANGEBYSCORE', KEYS[k], '-inf', now, 'WITHSCORES', 'LIMIT', 0, ARGV[1])
  local list = {}
  for i = 1, #found, 2 do
    local tried = call('HGET', KEYS[k + 1], found[i])
    list[#list + 1] = found[i]
    list[#list + 1] = found[i + 1]
    list[#list + 1] = tried and tonumber(tried:match('^%d+')) or 0
  end
  seen[#seen + 1] = list
end
return seen
