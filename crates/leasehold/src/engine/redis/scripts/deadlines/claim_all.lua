-- Fragment: claims from all buckets of a pool, where one server has them all.
--
-- A side key holds a time before which nothing of the pool is due: most claims read it and end there. It is right because
-- whoever makes something due earlier lowers it (`next.lua`). Without it nothing is known, so all buckets are looked at,
-- and it is written anew. It lives for a moment only: what came here past these scripts (a restore of single keys, a
-- program of another kind, a client of an older version) is late by that moment and no more.
-- KEYS in a cluster all of `claim_one.lua` for each bucket; last the side key. On one server the others are not named,
--      because that costs more than all the rest of a claim that finds nothing
-- ARGV most per bucket, ms of visibility, how many buckets, and what their names are before and after their number
local MOMENT = '10000' -- ms
local call, ARGV, next_key = redis.call, ARGV, KEYS[#KEYS]
-- GETEX counts as a write although it changes nothing: a replica refuses instead of answering from old data, and what
-- follows passes when memory is full, because to acknowledge gives memory back.
local known, time = call('GETEX', next_key), call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
known = known and tonumber(known)
if known and known > now_ms then return false end

local buckets, earliest = {}, '9007199254740992' -- nothing is pending: later than any time
for n = 0, ARGV[3] - 1 do
  local due = 'leasehold:due:' .. ARGV[4] .. n .. ARGV[5]
  local first = call('ZRANGE', due, '0', '0', 'WITHSCORES')[2]
  if first then
    if tonumber(first) <= now_ms then
      buckets[#buckets + 1] = due
    elseif tonumber(first) < tonumber(earliest) then
      earliest = first
    end
  end
end
if not buckets[1] then
  call('SET', next_key, earliest, 'PX', MOMENT)
  return false
end
call('DEL', next_key) -- the claim changes what is due next
