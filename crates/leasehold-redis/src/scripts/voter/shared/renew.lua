-- Extends leases of readers. Never restores one that is gone.
-- KEYS Q the node's record, then per lease K F Z H
-- ARGV 1 how long F is kept in ms, then per lease owner, px
-- per lease 1 extended   0 not held   2 held by a writer   3 longer than this quorum allows
local record = try('GET', KEYS[1])
local most = type(record) == 'string' and record:match('^1 %S+ %d+ %d+ %d+ %S+ (%d+) ')
most = tonumber(most or 999999999)

read_clock()
local kept = {}
for i = 1, (#ARGV - 1) / 2 do
  local K, F, Z, H = unpack(KEYS, 4 * i - 2, 4 * i + 1)
  local owner, px = ARGV[2 * i], ARGV[2 * i + 1]
  -- F outlives a long hold; also a write in any case, so that a replica refuses instead of answering "not held".
  call('PEXPIRE', F, keep, 'GT')
  local holder = without_expired(try('GET', K), K, Z, H)
  local fence = fence_of_reader(holder, H, owner)
  local answer = (not holder or holder == SHARED) and 0 or 2
  if fence then answer = tonumber(px) <= most and 1 or 3 end
  if answer == 1 then write_reader(holder, K, Z, H, owner, fence, px) end
  kept[i] = answer
end
return kept
