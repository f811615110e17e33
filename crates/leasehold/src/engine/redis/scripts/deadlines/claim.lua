-- Claims what is due, oldest first.
-- KEYS per bucket: due; where a bucket's keys may be on two nodes also its tries and its context
-- ARGV most per bucket, ms of visibility, keys per bucket
-- {now, {bucket from 0, receipt, 1 if more is due, {id, score, ..}, {attempt, ..}, {context or false, ..} or false}, ..}, with
-- a list for each bucket where something is due
local limit, visible, stride = tonumber(ARGV[1]), after(ARGV[2]), tonumber(ARGV[3])

-- All that is read is read before the first write: in a slot that is on its way, a key that is not here is an error.
local function claim(found, due)
  local tail = due:sub(15)
  local tries, context = 'leasehold:tries:' .. tail, 'leasehold:context:' .. tail
  local more = 0
  if #found > 2 * limit then
    found[#found], more = nil, 1
    found[#found] = nil
  end
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
  return receipt, more, found, attempts, contexts
end

-- Changes nothing, but is a write: a replica refuses instead of answering from old data, and what follows it passes when
-- memory is full, because to acknowledge gives memory back.
call('PEXPIRE', KEYS[1], 0, 'GT')
local claimed, most = { now }, limit + 1
for k = 1, #KEYS, stride do
  local found = call('ZRANGEBYSCORE', KEYS[k], '-inf', now, 'WITHSCORES', 'LIMIT', 0, most)
  if found[1] then claimed[#claimed + 1] = { (k - 1) / stride, claim(found, KEYS[k]) } end
end
return claimed
