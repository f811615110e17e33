-- The ordinary release: of a lock that is ours and that nobody waits for, or K would be marked (`claim.lua`). Flat, as
-- `claim_free.lua`.
-- KEYS K   ARGV id and a space
-- 1     released
-- nil   any other case: nothing was done, and the release of `dispatch.lua` finds out
local call = redis.call
local K = KEYS[1]
local holder = call('GET', K)
if not holder or holder:sub(1, 33) ~= ARGV[1] or holder:byte(34) == 48 then return nil end
call('DEL', K)
return 1
