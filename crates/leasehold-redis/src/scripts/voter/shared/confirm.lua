-- Raises the fence of a reader that is still there: after it no vote on this node is below. Other readers may have been given
-- a higher one since, but not this reader: then a late copy of its vote came, perhaps after a writer.
-- KEYS K F Z H · T highest fence
-- ARGV 1 how long F is kept in ms · 2 owner · 3 fence
-- 1 raised, or as high already   0 not ours, or higher already
local K, F, Z, H, T = unpack(KEYS)
local owner, fence = ARGV[2], tonumber(ARGV[3])
call('PEXPIRE', F, keep, 'GT') -- first write: passes when memory is full, and a replica refuses it
read_clock()
local own = tonumber(fence_of_reader(without_expired(try('GET', K), K, Z, H), H, owner))
if not own or own > fence then return 0 end
local last, before = read_fences(F)
if last < fence then set_fence(F, T, fence, before) end
if own < fence then call('HSET', H, owner:sub(1, 33), ARGV[3] .. ' 0 ' .. owner:sub(34)) end
return 1
