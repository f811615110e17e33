-- Makes claimed deadlines due again after a while.
-- KEYS and answer as in `receipts.lua`, and that of `quiet.lua`
-- ARGV per receipt: id, number, ms
local scores = {}
local digits = each_good(3, function(id, _, at)
  scores[#scores + 1] = after(ARGV[at + 2])
  scores[#scores + 1] = id
end)
if scores[1] then
  call('ZADD', due, unpack(scores))
  end_quiet(scores)
end
return digits
