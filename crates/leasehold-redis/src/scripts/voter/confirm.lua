-- Raises the fence of a lock that is still ours: after it no vote on this node is below the fence of the grant.
-- A node that has given a higher fence refuses: another claim may have been here since the votes were counted, with this
-- very fence, before a late copy of our vote came.
-- KEYS K F H
-- ARGV 1 how long F is kept in ms · 2 owner · 3 fence
-- 1 raised, or as high already   0 not ours, or higher already
local K, F, H = unpack(KEYS)
local fence = tonumber(ARGV[3])
call('PEXPIRE', F, keep, 'GT') -- first write: passes when memory is full, and a replica refuses it
if not is_held_by(try('GET', K), ARGV[2]) then return 0 end
local last = read_fences(F)
if last > fence then return 0 end
if last < fence then
  read_clock()
  set_fence(F, H, fence)
end
return 1
