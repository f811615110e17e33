-- Fragment: ends the quiet of a pool in time for what is due before that; see `claim_all.lua`.
-- KEYS after those of the bucket: the pool's quiet, or none

-- Called with what was set: a list of time, id, time, id and so on.
local function end_quiet(scores)
  if not KEYS[5] then return end
  local earliest = math.huge
  for i = 1, #scores, 2 do
    earliest = math.min(earliest, scores[i])
  end
  -- A key lives through the millisecond that it ends with. If it is not there, or ends before that, nothing happens.
  call('PEXPIREAT', KEYS[5], ('%.0f'):format(math.max(earliest - 1, 0)), 'LT')
end
