-- The ordinary releases of a call that carries several, as `release_unwanted.lua`: three commands for all of them.
-- KEYS K of each, then W of each   ARGV id and a space of each
-- 1 if all were released; otherwise a list: per release 1, or nil as there
local call, KEYS, ARGV = redis.call, KEYS, ARGV
local count = #ARGV
local holders = call('MGET', unpack(KEYS, 1, count))
local nobody_waits = call('EXISTS', unpack(KEYS, count + 1)) == 0
local replies, ours, released = {}, {}, 0
for i = 1, count do
  local holder = holders[i]
  replies[i] = false
  if holder and holder:sub(1, 33) == ARGV[i] and (nobody_waits or call('EXISTS', KEYS[count + i]) == 0) then
    released = released + 1
    ours[released], replies[i] = KEYS[i], 1
  end
end
if released > 0 then call('DEL', unpack(ours)) end
return released == count and 1 or replies
