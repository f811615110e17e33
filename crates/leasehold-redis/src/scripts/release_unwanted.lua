-- The ordinary release: of a lock that is ours and that nobody waits for. Flat, as `claim_free.lua`.
-- KEYS K W   ARGV id and a space
-- 1     released
-- nil   any other case: nothing was done, and the release of `dispatch.lua` finds out
local call = redis.call
local K = KEYS[1]
local holder = call('GET', K)
if not holder or holder:sub(1, 33) ~= ARGV[1] or call('EXISTS', KEYS[2]) ~= 0 then return nil end
call('DEL', K)
return 1
