-- Fragment: the two ordinary cases, with as few commands as they need. Both answer nil in any other case, and the
-- fragments for all cases then run from the start.

-- A claim of a lock that nobody holds, waits for or has ended this attempt on. Keys and arguments as claim.
local function claim_free(k, a)
  local K, F = KEYS[k], KEYS[k + 1]
  if try('EXISTS', K, KEYS[k + 2], KEYS[k + 4]) ~= 0 then return nil end
  if not now then read_clock() end
  local last = call('SET', F, now, 'PX', keep, 'GET')
  if last and tonumber(last) >= now_us then
    call('SET', F, last) -- ahead of the clock: put back, claim counts on from it
    return nil
  end
  call('SET', K, ARGV[a], 'PX', ARGV[a + 1])
  return now
end

-- The release of a lock that is ours and that nobody waits for. Keys and arguments as release.
local function release_unwanted(k, a)
  local K = KEYS[k]
  if try('GET', K) ~= ARGV[a] or try('EXISTS', KEYS[k + 2]) ~= 0 then return nil end
  call('DEL', K)
  return 1
end
