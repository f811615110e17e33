-- Fragment: what a record is, and what is under a key. K (the record, PX) · B (the fence of the last that began) · V (who
-- watches) · G (tombstone of one attempt)
-- A record is "leasehold:1 running FENCE PRINT OWNER", or another state with its result instead of an owner. Whatever a
-- script cannot decide by its owner alone it answers as it found it: the client reads it.

-- How long B outlives what began, in ms.
local KEPT = 86400000

-- Of a running record its fence, its fingerprint and where its owner begins; nothing of anything else.
local function running(found)
  if found then return found:match('^leasehold:1 running (%d+) (%S+) ()') end
end

local function is_run_by(found, owner)
  local _, _, rest = running(found)
  return rest ~= nil and found:sub(rest) == owner
end

-- keys K
-- {text or false, pttl}
local function look(k)
  return { call('GET', KEYS[k]), call('PTTL', KEYS[k]) }
end
