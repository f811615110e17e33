-- Fragment: claims from all buckets of a pool, where one server has them all.
--
-- A pool is quiet while nothing of it is due: a side key exists that long, and most claims end at it. It is right because
-- whoever makes something due earlier lets it end earlier (`quiet.lua`). Without it nothing is known, so all buckets are
-- looked at. It never lasts for more than a moment: what came here past these scripts (a restore of single keys, a program
-- of another kind, a client of an older version) is late by that moment and no more.
-- KEYS in a cluster all of `claim_one.lua` for each bucket; last the pool's quiet. On one server the others are not named,
--      because that costs more than all the rest of a claim that finds nothing
-- ARGV most per bucket, ms of visibility, how many buckets, and what their names are before and after their number
local MOMENT = 10000 -- ms
local call, ARGV, quiet = redis.call, ARGV, KEYS[#KEYS]
-- GETEX counts as a write although it changes nothing: a replica refuses instead of answering from old data, and what
-- follows passes when memory is full, because to acknowledge gives memory back.
if call('GETEX', quiet) then return false end

local time = call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local buckets, quiet_until = {}, now_ms + MOMENT
for n = 0, ARGV[3] - 1 do
  local due = 'leasehold:due:' .. ARGV[4] .. n .. ARGV[5]
  local first = call('ZRANGE', due, '0', '0', 'WITHSCORES')[2]
  if first and tonumber(first) <= now_ms then
    buckets[#buckets + 1] = due
  elseif first then
    quiet_until = math.min(quiet_until, first - 1)
  end
end
if not buckets[1] then
  call('SET', quiet, '', 'PXAT', ('%.0f'):format(quiet_until))
  return false
end
