-- Fragment: renews a running record. Never brings back one that is gone.
-- renew_record         keys K F   arguments owner, px
-- renew_record_alone   keys K     the same, while the keys of a slot are on two nodes
-- 1 extended   0 not ours
local function renew_record_alone(k, a)
  check_px(ARGV[a + 1])
  local mine = is_run_by(call('GET', KEYS[k]), ARGV[a])
  if mine then
    call('PEXPIRE', KEYS[k], ARGV[a + 1])
  else
    call('PEXPIRE', KEYS[k], 0, 'GT') -- changes nothing, but a replica refuses it
  end
  return mine and 1 or 0
end

local function renew_record(k, a)
  local renewed = renew_record_alone(k, a)
  call('PEXPIRE', KEYS[k + 1], keep, 'GT') -- F outlives a long execution
  return renewed
end
