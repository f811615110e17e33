-- Writes a node's record if it has not changed meanwhile, and raises the floor of its fences.
-- KEYS Q the node's record · H highest fence · L floor of fences
-- ARGV 1 record as seen ('': none) · 2 new record · 3 floor
-- 1 written   0 the record is another one
-- A floor is never lowered again, and no vote is possible while it is far ahead: one of a wrong clock is refused.
local FLOOR_LEAD_MAX_US = 180000000

local call, Q, H, L = redis.call, unpack(KEYS)
local seen, record, floor = ARGV[1], ARGV[2], tonumber(ARGV[3])
if floor >= 9007199254740992 then return redis.error_reply('FENCE the floor is no fence') end
call('PERSIST', Q) -- a write, so that a replica refuses instead of answering from old data
local present = call('GET', Q)
if (present or '') ~= seen or present == '' then return 0 end
local time = call('TIME')
local ahead = floor - (time[1] * 1000000 + time[2])
if ahead > FLOOR_LEAD_MAX_US and floor > tonumber(call('GET', H) or 0) then
  return redis.error_reply('FLOOR the clock of this node is too far behind the fences of the other nodes')
end
-- A vote under the new record must find the floor.
for _, key in ipairs({ L, H }) do
  if tonumber(call('GET', key) or 0) < floor then call('SET', key, ('%.0f'):format(floor)) end
end
call('SET', Q, record)
return 1
