-- Fragment: runs the operations of one call, in order, each on its own: an error in one leaves the others alone.
-- KEYS of each operation follow each other: K (who holds it, PX) · F (last fence of the server, in a cluster of the slot) ·
-- W (waiters) · S (when each waiter was last heard of) · Z H (members, if several hold it) · L (limit of permits) · G (tombstone
-- of one attempt)
-- ARGV per operation a letter and its arguments:
--   c claim  r release  a abandon  t abandon with tombstone  f force-release  n renew in a grace  v change the mode
--   l set the limit  z keep a member's lease  y give it to one who waits  A all of the claims that follow or none
--   and by one key: k keep closed  o release  e move the end of a member  m of all
-- `k` and `a` are where the first operation has its keys and its letter: see the fragments of `grace`.
-- answers a list with one reply per operation; {9, error} if it failed
local cases
local function run(letter, k, a)
  -- The ordinary cases, nearly as in `claim_free.lua` and `release_unwanted.lua`.
  if grace_ms <= 0 then
    local K, W = KEYS[k], KEYS[k + 2]
    if letter == 'c' and ARGV[a + 5] == '' and call('EXISTS', K, W, KEYS[k + 7]) == 0 then
      check_px(ARGV[a + 2])
      if not now then read_clock() end
      local fence = next_fence(KEYS[k + 1])
      call('SET', K, ARGV[a] .. fence .. ' ' .. ARGV[a + 1], 'PX', ARGV[a + 2])
      return fence
    elseif letter == 'r' then
      local holder = call('GET', K)
      if holder and holder:sub(1, 33) == ARGV[a] and call('EXISTS', W) == 0 then
        call('DEL', K)
        return 1
      end
    end
  end
  if not now then read_clock() end
  cases = cases or all_cases()
  return cases[letter](k, a)
end

-- Keys and arguments of each, the letter included.
local WIDTHS = {
  c = { 8, 8 }, r = { 7, 2 }, a = { 7, 3 }, t = { 8, 4 }, f = { 7, 2 }, n = { 7, 6 }, v = { 7, 5 }, l = { 7, 2 },
  z = { 7, 3 }, y = { 7, 3 }, k = { 1, 5 }, o = { 1, 2 }, e = { 1, 4 }, m = { 1, 2 },
}
local replies, count = {}, 0
while ARGV[a] do
  local letter = ARGV[a]
  local width = WIDTHS[letter] or { 8 * ARGV[a + 1], 2 + 7 * ARGV[a + 1] }
  local ok, reply = pcall(run, letter, k, a + 1)
  count = count + 1
  replies[count] = ok and reply or { 9, type(reply) == 'table' and reply.err or tostring(reply) }
  k, a = k + width[1], a + width[2]
end
return replies
