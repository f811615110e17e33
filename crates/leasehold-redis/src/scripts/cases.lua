-- Fragment: runs the operations of one call, in order, each on its own, as `dispatch.lua` does for locks.
-- KEYS of each operation follow each other; ARGV has per operation a letter and its arguments. `k` and `a` are where the first
-- operation has its keys and its letter: see the fragments of `grace`.
-- answers a list with one reply per operation; {9, error} if it failed
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
