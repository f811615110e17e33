-- The ordinary claims of a call that carries several, as `claim_free.lua`: one look at all of them, and a block of fences.
-- KEYS F, then K of each, W of each, G of each   ARGV per claim: id and a space, rest of the owner value, and px, unless
-- it is that of the claim before
-- <fence>   all granted: the first with this fence, every other with the next
-- otherwise a list: per claim its fence, or nil as there
local call, KEYS, ARGV = redis.call, KEYS, ARGV
local F, count = KEYS[1], (#KEYS - 1) / 3
local all_free = call('EXISTS', unpack(KEYS, 2)) == 0
local time = call('TIME')
local first = time[1] * 1000000 + time[2]
local last = call('SET', F, ('%.0f'):format(first + count - 1), 'GET')
local is_over = false
if last and last - first >= 0 then
  first = last + 1
  is_over = last + count - 9007199254740991 > 0 -- a claim that comes alone says so
  call('SET', F, is_over and last or ('%.0f'):format(last + count))
end
local replies, granted, px, a = {}, 0, nil, 1
for i = 1, count do
  local K, id, rest = KEYS[1 + i], ARGV[a], ARGV[a + 1]
  a = a + 2
  if #(ARGV[a] or id) < 33 then
    px, a = ARGV[a], a + 1
  end
  local fence = ('%.0f'):format(first + i - 1)
  replies[i] = false
  -- A name may be there twice: the first has taken it then.
  if #px <= 9 and not is_over
    and (all_free or call('EXISTS', K, KEYS[1 + count + i], KEYS[1 + 2 * count + i]) == 0)
    and call('SET', K, id .. fence .. ' ' .. rest, 'PX', px, 'NX') then
    replies[i], granted = fence, granted + 1
  end
end
return granted == count and replies[1] or replies
