-- Fragment: claims what is due, oldest first. It follows `claim_all.lua` or `claim_one.lua`, which end the script if nothing is
-- due: most claims find nothing, and cost what they do until they know it. They leave behind
--   buckets   the due keys of buckets where something is due; the keys are told in `begin.lua`
--   time      the answer of TIME, and now_ms, the same in milliseconds
-- KEYS and ARGV as in the one before it
-- false if nothing is due, or {now, {receipt, 1 if more is due, {id, score, ..}, {attempt, ..}, {context or false, ..} or
-- false}, ..}, with a list for each bucket
local PART = 500 -- arguments are unpacked in parts, because Lua's stack is bounded
local now_us = time[1] .. ('00000' .. time[2]):sub(-6)
-- Times are texts: numbers cost a conversion at every command.
local now, visible = ('%.0f'):format(now_ms), ('%.0f'):format(now_ms + ARGV[2])

-- Most bytes of contexts in one answer. One that takes too long to arrive would count attempts that nobody makes.
local BYTES_MAX = 16777216
local bytes = 0

-- How many of these there is room for; there is for one, whatever its size.
local function fitting(context, ids)
  for n, id in ipairs(ids) do
    local size = call('HSTRLEN', context, id)
    if bytes > 0 and bytes + size > BYTES_MAX then return n - 1 end
    bytes = bytes + size
  end
  return #ids
end

-- What is due in a bucket, and what is known of it.
local function look(due)
  local tail = due:sub(15)
  local tries, context = 'leasehold:tries:' .. tail, 'leasehold:context:' .. tail
  local more = call('ZCOUNT', due, '-inf', now) > tonumber(ARGV[1]) and 1 or 0
  local found = call('ZRANGEBYSCORE', due, '-inf', now, 'WITHSCORES', 'LIMIT', '0', ARGV[1])
  local ids = {}
  for i = 1, #found, 2 do
    ids[#ids + 1] = found[i]
  end
  local contexts = call('EXISTS', context) == 1 and {}
  for n = #ids, (contexts and fitting(context, ids) or #ids) + 1, -1 do
    more, ids[n], found[2 * n - 1], found[2 * n] = 1, nil, nil, nil
  end
  local receipt, last = now_us, call('HGET', tries, '')
  if last and tonumber(last) >= tonumber(now_us) then receipt = ('%.0f'):format(last + 1) end
  local attempts = {}
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
  local answer = { receipt, more, found, attempts, contexts }
  return { due = due, tries = tries, receipt = receipt, ids = ids, attempts = attempts, answer = answer }
end

local function hide(seen)
  local ids, attempts, receipt = seen.ids, seen.attempts, seen.receipt
  for i = 1, #ids, PART do
    local scores, texts = {}, {}
    for n = i, math.min(i + PART - 1, #ids) do
      local at = 2 * (n - i) + 1
      scores[at], scores[at + 1] = visible, ids[n]
      texts[at], texts[at + 1] = ids[n], attempts[n] .. ' ' .. receipt
    end
    call('ZADD', seen.due, unpack(scores))
    call('HSET', seen.tries, unpack(texts))
  end
  call('HSET', seen.tries, '', receipt)
end

-- All is read before anything changes: an error on the way leaves everything as it was.
local seen, claimed = {}, { now }
for n, due in ipairs(buckets) do
  seen[n] = look(due)
  claimed[n + 1] = seen[n].answer
end
for _, one in ipairs(seen) do
  hide(one)
end
return claimed
