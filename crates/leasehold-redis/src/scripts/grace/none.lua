-- Fragment for clients without a grace.
local grace_ms = -2
-- Where the first operation has its keys and its letter.
local k, a = 1, 1
