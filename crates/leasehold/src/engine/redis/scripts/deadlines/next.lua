-- Fragment: tells the next claim of what is due earlier than it would look; see `claim_all.lua`.
-- KEYS after those of the bucket: the side key of the pool, or none
-- Read before anything is written: an error leaves everything as it was.
local next_key = KEYS[5]
local known = next_key and tonumber(call('GET', next_key))

-- These were set: a list of time, id, time, id and so on.
local function tell_next(scores)
  local earliest = known
  for i = 1, known and #scores or 0, 2 do
    earliest = math.min(earliest, scores[i])
  end
  if known and earliest < known then call('SET', next_key, ('%.0f'):format(earliest), 'KEEPTTL') end
end
