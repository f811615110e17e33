-- Moves claimed deadlines to the dead ones.
-- KEYS and answer as in `receipts.lua`
-- ARGV per receipt: id, number, why
local digits, good = each_good(3, function(id, attempt, at)
  local why, given = ARGV[at + 2], call('HGET', context, id)
  local text = attempt .. ' ' .. now .. ' ' .. #why .. ' ' .. why
  if given then text = text .. ' ' .. given end
  call('HSET', dead, id, text)
end)
if good[1] then forget(good) end
return digits
