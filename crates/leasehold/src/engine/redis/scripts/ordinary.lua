-- Fragment: the two ordinary cases, with as few commands as they need. Both answer nil in any other case, for which the
-- fragments below then run.

-- A claim of a lock that nobody holds, waits for or has ended this attempt on. Keys and arguments as claim.
local function claim_free(k, a)
  local K = KEYS[k]
  if try('EXISTS', K, KEYS[k + 2], KEYS[k + 4]) ~= 0 then return nil end
  check_px(ARGV[a + 1])
  if not now then read_clock() end
  local fence = next_fence(KEYS[k + 1])
  call('SET', K, ARGV[a], 'PX', ARGV[a + 1])
  return fence
end

-- The release of a lock that is ours and that nobody waits for. Keys and arguments as release. If somebody waits, the
-- second answer is the first waiter, which left the queue.
local function release_unwanted(k, a)
  local K = KEYS[k]
  if try('GET', K) ~= ARGV[a] then return nil end
  local first = call('ZPOPMIN', KEYS[k + 2])
  if first[1] then return nil, first end
  call('DEL', K)
  return 1
end
