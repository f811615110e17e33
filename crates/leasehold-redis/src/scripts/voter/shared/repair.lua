-- Puts a reader back that this node has lost, while a majority still has it. Idempotent for its owner. A writer that waits does
-- not keep it out: it reads already.
-- KEYS K F Z H · G tombstone of this attempt · Q the node's record · T highest fence
-- ARGV 1 how long F is kept in ms · 2 owner · 3 px · 4 expected record · 5 fence of the lease
-- 1 ours   0 refused
local K, F, Z, H, G, Q, T = unpack(KEYS)
local owner, px, fence = ARGV[2], ARGV[3], tonumber(ARGV[5])
call('PEXPIRE', F, keep, 'GT') -- a write, so that a replica refuses instead of answering from old data

check_px(px)
if call('EXISTS', G) == 1 then return 0 end
local data, most = read_record(Q, ARGV[4])
if not data or not is_data_set(data) then return 0 end
check_longest(px, most)

read_clock()
local holder = without_expired(try('GET', K), K, Z, H)
if holder and holder ~= SHARED then return 0 end
local last, before = read_fences(F)
-- A writer had it since: this lease is over, whatever its holder still believes.
if before >= fence and not fence_of_reader(holder, H, owner) then return 0 end
if last < fence then set_fence(F, T, fence, before) end
write_reader(holder, K, Z, H, owner, ARGV[5], px)
return 1
