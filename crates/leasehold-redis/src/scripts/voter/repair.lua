-- Puts a lease back that this node has lost, while a majority still has it. Idempotent for its owner.
-- KEYS K F · G tombstone of this attempt · Q the node's record · H highest fence
-- ARGV 1 how long F is kept in ms · 2 owner · 3 px · 4 expected record · 5 fence of the lease
-- 1 ours   0 refused
local K, F, G, Q, H = unpack(KEYS)
local owner, px, fence = ARGV[2], ARGV[3], tonumber(ARGV[5])
call('PEXPIRE', F, keep, 'GT') -- a write, so that a replica refuses instead of answering from old data

check_px(px)
if call('EXISTS', G) == 1 then return 0 end
local data, most = read_record(Q, ARGV[4])
if not data or not is_data_set(data) then return 0 end
check_longest(px, most)

local holder, last = try('GET', K), read_fences(F)
if holder and not is_held_by(holder, owner) then return 0 end
-- Somebody had it under a later fence: this lease is over, whatever its holder still believes.
if not holder and last > fence then return 0 end
if last < fence then
  read_clock()
  set_fence(F, H, fence)
end
call('SET', K, held_text(owner, ARGV[5]), 'PX', px)
return 1
