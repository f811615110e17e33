-- Settles claimed deadlines, in order.
-- KEYS due, tries, context, dead
-- ARGV per receipt: id, number, and what becomes of it: '' done, '+MS' due again after so long, '-' given back, '=WHY' buried
-- a text with one digit per receipt: 1 good, 0 not
local due, tries, context, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

local function bury(id, attempt, why)
  local text, given = attempt .. ' ' .. now .. ' ' .. #why .. ' ' .. why, call('HGET', context, id)
  if given then text = text .. ' ' .. given end
  call('HSET', dead, id, text)
end

-- Its attempt does not count. Without a receipt, so that the same again changes nothing.
local function give_back(id, attempt)
  if attempt == '1' then
    call('HDEL', tries, id)
  else
    call('HSET', tries, id, (attempt - 1) .. ' -')
  end
end

call('PEXPIRE', due, 0, 'GT') -- first write: passes when memory is full, and a replica refuses it
local ids, digits, void = {}, {}, {}
for i = 1, #ARGV, 3 do
  ids[#ids + 1] = ARGV[i]
end
local tried = call('HMGET', tries, unpack(ids))
local shown, ended = {}, {} -- when, id, when, id ..; and ids
for n, id in ipairs(ids) do
  local attempt, number = (tried[n] or ''):match('^(%d+) (%d+)$')
  if number == ARGV[3 * n - 1] and not void[id] then
    local kind, rest = ARGV[3 * n]:sub(1, 1), ARGV[3 * n]:sub(2)
    digits[n], void[id] = 1, kind ~= '+'
    if kind == '+' or kind == '-' then
      shown[#shown + 1] = kind == '+' and after(rest) or now
      shown[#shown + 1] = id
      if kind == '-' then give_back(id, attempt) end
    else
      ended[#ended + 1] = id
      if kind == '=' then bury(id, attempt, rest) end
    end
  else
    digits[n] = 0
  end
end
if shown[1] then call('ZADD', due, unpack(shown)) end
if ended[1] then
  call('ZREM', due, unpack(ended))
  call('HDEL', tries, unpack(ended))
  call('HDEL', context, unpack(ended))
end
return table.concat(digits)
