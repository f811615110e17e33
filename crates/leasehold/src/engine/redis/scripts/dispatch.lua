-- Fragment: runs the operations of one call, in order, each on its own: an error in one leaves the others alone.
-- KEYS of each operation follow each other: K (owner value, PX) · F (last fence) · W (waiters) · S (when each waiter
-- was last heard of) · G (tombstone of one attempt)
-- ARGV 1 how long F is kept in ms, then per operation a letter and its arguments:
--   c claim  r release  t release with tombstone  f force-release  n renew
-- answers a list with one reply per operation; {9, error} if it failed
local operations = {
  c = { claim, 5, 7 },
  r = { release, 4, 3 },
  t = { release, 5, 3 },
  f = { force_release, 4, 1 },
  n = { renew, 2, 2 },
}
local replies, k, a = {}, 1, 2
while ARGV[a] do
  local operation = operations[ARGV[a]]
  local ok, reply = pcall(operation[1], k, a + 1)
  replies[#replies + 1] = ok and reply or { 9, type(reply) == 'table' and reply.err or tostring(reply) }
  k = k + operation[2]
  a = a + 1 + operation[3]
end
return replies
