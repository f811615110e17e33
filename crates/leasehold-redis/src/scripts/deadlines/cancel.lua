-- Removes deadlines, whatever became of them.
-- KEYS due, tries, context, dead
-- ARGV ids
-- a text with one digit per id: 1 there was one, 0 there was none
local digits = {}
for n = 1, #ARGV do
  digits[n] = math.min(1, call('ZREM', KEYS[1], ARGV[n]) + call('HDEL', KEYS[4], ARGV[n]))
end
call('HDEL', KEYS[2], unpack(ARGV))
call('HDEL', KEYS[3], unpack(ARGV))
return table.concat(digits)
