-- Removes what was done.
-- KEYS and answer as in `receipts.lua`
-- ARGV per receipt: id, number
local digits, good = each_good(2)
if good[1] then forget(good) end
return digits
