-- Fragment: runs the operations of one call on locks in Redisson's format, as `dispatch.lua` does it for others.
-- KEYS of each operation follow each other: K (the lock, PX) · T (last fencing token) · N (holder data, PX) · G (tombstone of one
-- attempt)
-- ARGV per operation a letter and its arguments:
--   c claim  n renew  r release  t release with tombstone  k keep closed  f force-release  and by one key: m renew  o release
-- answers a list with one reply per operation; {9, error} if it failed
local cases = {
  c = claim,
  n = function(k, a) return renew(KEYS[k], KEYS[k + 1], a) end,
  m = function(k, a) return renew(KEYS[k], nil, a) end,
  r = function(k, a) return release(KEYS[k], KEYS[k + 1], a) end,
  o = function(k, a) return release(KEYS[k], nil, a) end,
  -- keys K N G   arguments field, channel, ms to keep the tombstone
  t = function(k, a)
    local reply = release(KEYS[k], KEYS[k + 1], a)
    call('SET', KEYS[k + 2], 1, 'PX', ARGV[a + 2])
    return reply
  end,
  k = close,
  f = force_release,
}
-- Keys and arguments of each, the letter included.
local WIDTHS = {
  c = { 4, 5 }, n = { 2, 3 }, m = { 1, 3 }, r = { 2, 3 }, o = { 1, 3 }, t = { 3, 4 }, k = { 2, 4 }, f = { 2, 3 },
}
local replies, k, a = {}, 1, 1
while ARGV[a] do
  local letter = ARGV[a]
  local ok, reply = pcall(cases[letter], k, a + 1)
  replies[#replies + 1] = ok and reply or { 9, type(reply) == 'table' and reply.err or tostring(reply) }
  k, a = k + WIDTHS[letter][1], a + WIDTHS[letter][2]
end
return replies
