-- Sets deadlines; whatever there was of these ids is replaced.
-- KEYS due, tries, context, dead
-- ARGV per deadline: id, when in ms ('+' before it: from now), context with '=' before it or '-'; no id twice
-- a text with one digit per deadline: 1
local due, tries, context, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ids, scores, given, without = {}, {}, {}, {}
for i = 1, #ARGV, 3 do
  local id, when, text = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if when:sub(1, 1) == '+' then when = after(when:sub(2)) end
  ids[#ids + 1] = id
  scores[#scores + 1] = when
  scores[#scores + 1] = id
  if text == '-' then
    without[#without + 1] = id
  else
    given[#given + 1] = id
    given[#given + 1] = text:sub(2)
  end
end
call('ZADD', due, unpack(scores))
call('HDEL', tries, unpack(ids))
call('HDEL', dead, unpack(ids))
if given[1] then call('HSET', context, unpack(given)) end
if without[1] then call('HDEL', context, unpack(without)) end
return ('1'):rep(#ids)
