-- Extends leases. Never restores a key that is gone.
-- KEYS Q the node's record, then per lease K F
-- ARGV 1 how long F is kept in ms, then per lease owner, px
-- per lease 1 extended   0 not held   2 held by another owner   3 longer than this quorum allows
local record = try('GET', KEYS[1])
local most = type(record) == 'string' and record:match('^1 %S+ %d+ %d+ %d+ %S+ (%d+) ')
most = tonumber(most or 999999999)

local kept = {}
for k = 2, #KEYS, 2 do
  local K, owner, px = KEYS[k], ARGV[k], ARGV[k + 1]
  -- F outlives a long hold; also a write in any case, so that a replica refuses instead of answering "not held".
  call('PEXPIRE', KEYS[k + 1], keep, 'GT')
  local holder = try('GET', K)
  local answer = 2
  if not holder then
    answer = 0
  elseif is_held_by(holder, owner) then
    answer = tonumber(px) <= most and 1 or 3
  end
  if answer == 1 then call('PEXPIRE', K, px) end
  kept[#kept + 1] = answer
end
return kept
