-- Fragment: renewal. Never brings back a key that is gone.
-- keys K F   arguments owner, px
-- 1 extended   0 not ours
local function renew(k, a)
  check_px(ARGV[a + 1])
  local mine = call('GET', KEYS[k]) == ARGV[a]
  if mine then call('PEXPIRE', KEYS[k], ARGV[a + 1]) end
  -- F outlives a long hold; also a write in either case, so that a replica refuses instead of answering "not ours".
  call('PEXPIRE', KEYS[k + 1], keep, 'GT')
  return mine and 1 or 0
end
