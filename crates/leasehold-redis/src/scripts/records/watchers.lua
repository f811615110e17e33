-- Fragment: the watchers of a record. V is a set of "CHANNEL ID". A message is "look ID ID .."; it is a hint, and older
-- clients ignore it.
local WATCHERS_MAX = 10000
local IDS_PER_MESSAGE = 100

-- Also a first write: it passes when memory is full, and a replica refuses it.
local function take_watchers(V)
  return call('SPOP', V, WATCHERS_MAX)
end

local function tell(watchers)
  if not watchers[1] then return end
  local ids = {}
  for _, watcher in ipairs(watchers) do
    local channel, id = watcher:match('^(%S+) (%x+)$')
    if channel then
      ids[channel] = ids[channel] or {}
      table.insert(ids[channel], id)
    end
  end
  for channel, some in pairs(ids) do
    for i = 1, #some, IDS_PER_MESSAGE do
      local last = math.min(i + IDS_PER_MESSAGE - 1, #some)
      try(PUBLISH, channel, 'look ' .. table.concat(some, ' ', i, last))
    end
  end
end
