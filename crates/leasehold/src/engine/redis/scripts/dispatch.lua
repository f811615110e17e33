-- Fragment: runs the operations of one call, in order, each on its own: an error in one leaves the others alone.
-- KEYS of each operation follow each other: K (owner value, PX) · F (last fence) · W (waiters) · S (when each waiter
-- was last heard of) · G (tombstone of one attempt); those of a record are other ones, see `records/look.lua`
-- ARGV 1 how long F is kept in ms, then per operation a letter and its arguments:
--   c claim  r release  a abandon  t abandon with tombstone  f force-release  n renew  g renew with a grace
--   and of records, in capitals:
--   B begin  S settle  U settle with tombstone  O settle by K alone  W renew  V renew by K alone  X remove  L look
-- `k` and `a` are where the first operation has its keys and its letter: the text before this one says so.
-- answers a list with one reply per operation; {9, error} if it failed
-- Made when the first operation needs them: to make them takes longer than an ordinary operation.
local cases, records, steps
local function run(letter, k, a)
  local reply, first
  if letter == 'c' then
    reply = claim_free(k, a)
  elseif letter == 'r' then
    reply, first = release_unwanted(k, a)
  end
  if reply then return reply end
  if not now then read_clock() end
  if letter < 'a' then
    if not records then records, steps = all_records() end
    return records[letter](k, a)
  end
  cases = cases or all_cases()
  return cases[letter](k, a, first)
end

local replies, count = {}, 0
local letter = ARGV[a]
while letter do
  local ok, reply = pcall(run, letter, k, a + 1)
  count = count + 1
  replies[count] = ok and reply or { 9, type(reply) == 'table' and reply.err or tostring(reply) }
  if letter == 'c' then
    k, a = k + 5, a + 5
  elseif letter == 'r' then
    k, a = k + 4, a + 2
  elseif letter == 'n' then
    k, a = k + 2, a + 3
  elseif letter == 'a' then
    k, a = k + 4, a + 3
  elseif letter == 't' then
    k, a = k + 5, a + 4
  elseif letter == 'g' then
    k, a = k + 2, a + 4
  elseif letter == 'f' then
    k, a = k + 4, a + 2
  else
    local step = steps[letter]
    k, a = k + step[1], a + step[2]
  end
  letter = ARGV[a]
end
return replies
