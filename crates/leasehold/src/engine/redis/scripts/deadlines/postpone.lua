-- Makes claimed deadlines due again after a while.
-- KEYS and answer as in `receipts.lua`, and the side key of `next.lua`
-- ARGV per receipt: id, number, ms
local scores = {}
local digits = each_good(3, function(id, _, at)
  scores[#scores + 1] = after(ARGV[at + 2])
  scores[#scores + 1] = id
end)
if scores[1] then
  call('ZADD', due, unpack(scores))
  tell_next(scores)
end
return digits
