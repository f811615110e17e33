-- The ordinary releases of a call that carries several, as `release_unwanted.lua`: two commands for all of them.
-- KEYS K of each   ARGV id and a space of each
-- 1 if all were released; otherwise a list: per release 1, or nil as there
local call, KEYS, ARGV = redis.call, KEYS, ARGV
local count = #ARGV
local holders = call('MGET', unpack(KEYS))
local replies, ours, released = {}, {}, 0
for i = 1, count do
  local holder = holders[i]
  replies[i] = false
  if holder and holder:sub(1, 33) == ARGV[i] and holder:byte(34) ~= 48 then
    released = released + 1
    ours[released], replies[i] = KEYS[i], 1
  end
end
if released > 0 then call('DEL', unpack(ours)) end
return released == count and 1 or replies
