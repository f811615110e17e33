-- Many marks at once: sets, tests or clears them. A mark is a bare 1; anything else is never touched: it may be a record, a
-- lock, or another program's data.
-- KEYS the marks
-- ARGV 1 'm' set, 'n' set where there is nothing, 'e' test, 'c' clear; 2 ms to keep them, if they are set
-- a text with one digit per key: 1 set, there or removed; 0 not; 2 another type of key, which was left alone
local call, try = redis.call, redis.pcall
local letter, ms = ARGV[1], ARGV[2]

-- What there is, or the first of it: '1' is a mark, '' nothing or an empty text. A table: a key of another type.
local function look(K)
  return try('GETRANGE', K, 0, 1)
end

local cases = {
  m = function(K)
    local found = look(K)
    if type(found) == 'table' then return 2 end
    if found == '1' then return call('SET', K, 1, 'PX', ms) and 1 end
    return found == '' and call('SET', K, 1, 'PX', ms, 'NX') and 1 or 0
  end,
  n = function(K)
    return call('SET', K, 1, 'PX', ms, 'NX') and 1 or 0
  end,
  e = function(K)
    return call('EXISTS', K)
  end,
  c = function(K)
    local found = look(K)
    if type(found) == 'table' then return 2 end
    return found == '1' and call('DEL', K) or 0
  end,
}

-- Changes nothing, but is a write: a replica refuses instead of answering from old data. To set marks, it comes
-- last, because what follows a write is not refused when memory is full; to remove them, first, because in a
-- slot that is on its way a key that is not here (any more) is an error.
local function write_nothing()
  call('PEXPIRE', KEYS[1], 0, 'GT')
end

local case, digits, sets = cases[letter], {}, ms ~= nil
if not sets then write_nothing() end
for i = 1, #KEYS do
  digits[i] = case(KEYS[i])
end
if sets then write_nothing() end
return table.concat(digits)
