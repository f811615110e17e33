-- The ordinary claims of a call that carries several, as `claim_free.lua`: one look at all of them, and a block of fences.
-- KEYS F, then K of each, W of each, G of each   ARGV per claim: id and a space, rest of the owner value, and px, unless
-- it is that of the claim before
-- <fence>   all granted: the first with this fence, every other with the next
-- otherwise a list: per claim its fence, or nil as there
local call, KEYS, ARGV = redis.call, KEYS, ARGV
local F, count = KEYS[1], (#KEYS - 1) / 3
local nobody_waits = call('EXISTS', unpack(KEYS, 2 + count)) == 0

-- The fences of a block differ in their last two digits only, which come from a text: to format a number takes about as
-- long as a command.
local DIGITS = '0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546474849'
  .. '5051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899'
local time = call('TIME')
local first, fences, is_over = time[1] * 1000000 + time[2], nil, false
local function reserve()
  local over = first % 100 + count - 100
  if over > 0 then first = first + count - over end
  fences = ('%.0f'):format(first + count - 1)
  return call('SET', F, fences, 'GET')
end
local last = reserve()
if last and last - first >= 0 then
  first = last + 1
  reserve()
  if first + count - 9007199254740992 > 0 then
    is_over = true -- a claim that comes alone says so
    call('SET', F, last)
  end
end
fences = fences:sub(1, -3)

local replies, granted, px, a, digits = {}, 0, nil, 1, 2 * (first % 100) - 1
for i = 1, count do
  local K, id, rest = KEYS[1 + i], ARGV[a], ARGV[a + 1]
  a = a + 2
  if #(ARGV[a] or id) < 33 then
    px, a = ARGV[a], a + 1
  end
  digits = digits + 2
  local fence = fences .. DIGITS:sub(digits, digits + 1)
  replies[i] = false
  -- NX also because a name may be there twice: the first has taken it then.
  if #px <= 9 and not is_over
    and (nobody_waits or call('EXISTS', KEYS[1 + count + i], KEYS[1 + 2 * count + i]) == 0)
    and call('SET', K, id .. fence .. ' ' .. rest, 'PX', px, 'NX') then
    replies[i], granted = fence, granted + 1
  end
end
return granted == count and replies[1] or replies
