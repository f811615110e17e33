-- Claims what is due, oldest first. The keys of a bucket are told in `begin.lua`, which is not part of this script: most
-- claims find nothing due, and cost what they do until they know it.
-- KEYS per bucket: due; where a bucket's keys may be on two nodes also its tries and its context
-- ARGV most per bucket, ms of visibility, keys per bucket
-- {now, {receipt, 1 if more is due, {id, score, ..}, {attempt, ..}, {context or false, ..} or false}, ..}, with a list for
-- each bucket where something is due
local call, KEYS = redis.call, KEYS
local time = call('TIME')
local us = ('00000' .. time[2]):sub(-6)
local now = time[1] .. us:sub(1, 3) -- in ms, as text: numbers cost a conversion at every command

-- Changes nothing, but is a write: a replica refuses instead of answering from old data, and what follows it passes when
-- memory is full, because to acknowledge gives memory back.
call('PEXPIRE', KEYS[1], '0', 'GT')
local counts, is_any = {}, false
for k = 1, #KEYS, ARGV[3] do
  local count = call('ZCOUNT', KEYS[k], '-inf', now)
  if count > 0 then
    counts[k], is_any = count, true
  end
end
if not is_any then return { now } end

local PART = 500 -- arguments are unpacked in parts, because Lua's stack is bounded
local limit, now_us = tonumber(ARGV[1]), time[1] .. us
local visible = ('%.0f'):format(now + ARGV[2])

-- All that is read is read before the first write: in a slot that is on its way, a key that is not here is an error.
local function claim(due)
  local tail = due:sub(15)
  local tries, context = 'leasehold:tries:' .. tail, 'leasehold:context:' .. tail
  local found = call('ZRANGEBYSCORE', due, '-inf', now, 'WITHSCORES', 'LIMIT', '0', ARGV[1])
  local ids = {}
  for i = 1, #found, 2 do
    ids[#ids + 1] = found[i]
  end
  local receipt, last = now_us, call('HGET', tries, '')
  if last and tonumber(last) >= tonumber(now_us) then receipt = ('%.0f'):format(last + 1) end
  local attempts, contexts = {}, call('EXISTS', context) == 1 and {}
  for i = 1, #ids, PART do
    local j = math.min(i + PART - 1, #ids)
    local tried = call('HMGET', tries, unpack(ids, i, j))
    local given = contexts and call('HMGET', context, unpack(ids, i, j))
    for n = i, j do
      local before = tried[n - i + 1]
      attempts[n] = 1 + (before and tonumber(before:match('^%d+')) or 0)
      if given then contexts[n] = given[n - i + 1] end
    end
  end
  for i = 1, #ids, PART do
    local scores, texts = {}, {}
    for n = i, math.min(i + PART - 1, #ids) do
      local at = 2 * (n - i) + 1
      scores[at], scores[at + 1] = visible, ids[n]
      texts[at], texts[at + 1] = ids[n], attempts[n] .. ' ' .. receipt
    end
    call('ZADD', due, unpack(scores))
    call('HSET', tries, unpack(texts))
  end
  call('HSET', tries, '', receipt)
  return receipt, found, attempts, contexts
end

local claimed = { now }
for k = 1, #KEYS, ARGV[3] do
  if counts[k] then
    local receipt, found, attempts, contexts = claim(KEYS[k])
    claimed[#claimed + 1] = { receipt, counts[k] > limit and 1 or 0, found, attempts, contexts }
  end
end
return claimed
