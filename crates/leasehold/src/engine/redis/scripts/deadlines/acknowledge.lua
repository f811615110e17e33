-- Removes what was done. Nothing is added to a receipt.
local digits, good = each_good(2)
if good[1] then forget(good) end
return digits
