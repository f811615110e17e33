-- Fragment: renews a running record, by its own key alone. Never brings back one that is gone.
-- keys K   arguments owner, px
-- 1 extended   0 not ours
local function renew(k, a)
  check_px(ARGV[a + 1])
  local mine = is_run_by(call('GET', KEYS[k]), ARGV[a])
  -- Otherwise it changes nothing, but a replica refuses it.
  call('PEXPIRE', KEYS[k], mine and ARGV[a + 1] or '0', mine and 'XX' or 'GT')
  return mine and 1 or 0
end
