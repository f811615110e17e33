-- Fragment: receipts, for the scripts that take some.
-- KEYS due, tries, context, dead
-- ARGV per receipt: id, number, and what the script adds
-- a text with one digit per receipt: 1 good, 0 not
local due, tries, context, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

-- Calls `use` for each good receipt with its id, its attempt and where its arguments are; each has `width` of them. Answers
-- the digits and the ids that were good.
local function each_good(width, use)
  call('PEXPIRE', due, 0, 'GT') -- first write: passes when memory is full, and a replica refuses it
  local ids, good, digits, seen = {}, {}, {}, {}
  for i = 1, #ARGV, width do
    ids[#ids + 1] = ARGV[i]
  end
  local tried = call('HMGET', tries, unpack(ids))
  for n, id in ipairs(ids) do
    local at = (n - 1) * width + 1
    local attempt, number = (tried[n] or ''):match('^(%d+) (%d+)$')
    if number == ARGV[at + 1] and not seen[id] then
      seen[id] = true
      good[#good + 1] = id
      digits[n] = 1
      if use then use(id, attempt, at) end
    else
      digits[n] = 0
    end
  end
  return table.concat(digits), good
end

local function forget(ids)
  call('ZREM', due, unpack(ids))
  call('HDEL', tries, unpack(ids))
  call('HDEL', context, unpack(ids))
end
