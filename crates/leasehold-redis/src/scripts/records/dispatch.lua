-- Fragment: runs the operations of one call on records, in order, each on its own, as `dispatch.lua` does for locks.
-- KEYS of each operation follow each other: see `look.lua` and each operation
-- ARGV per operation a letter and its arguments:
--   b begin  s settle  t settle with tombstone  r renew  x remove  l look
-- `k` and `a` are where the first operation has its keys and its letter: see the fragments of `grace`.
-- answers a list with one reply per operation; {9, error} if it failed
local CASES = {
  b = { begin, 4, 5 },
  s = { settle, 3, 5 },
  t = { settle_unanswered, 4, 6 },
  r = { renew, 1, 3 },
  x = { remove, 2, 1 },
  l = { look, 1, 1 },
}
if not now then read_clock() end
local replies, count = {}, 0
while ARGV[a] do
  local case = CASES[ARGV[a]]
  local ok, reply = pcall(case[1], k, a + 1)
  count = count + 1
  replies[count] = ok and reply or { 9, type(reply) == 'table' and reply.err or tostring(reply) }
  k, a = k + case[2], a + case[3]
end
return replies
