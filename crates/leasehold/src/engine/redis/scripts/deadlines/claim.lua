-- Claims what is due, oldest first. The keys of a bucket are told in `begin.lua`, which is not part of this script: most
-- claims find nothing due, and cost what they do until they know it.
-- KEYS per bucket: due; in a cluster also its tries and its context: a node that is about to get the slot and has not all
--      of them must not answer
-- ARGV most per bucket, ms of visibility, keys per bucket
-- {now, {receipt, 1 if more is due, {id, score, ..}, {attempt, ..}, {context or false, ..} or false}, ..}, with a list for
-- each bucket where something is due
local call, KEYS = redis.call, KEYS
local time = call('TIME')
local us = ('00000' .. time[2]):sub(-6)
local now = time[1] .. us:sub(1, 3) -- in ms, as text: numbers cost a conversion at every command

local counts, is_any = {}, false
for k = 1, #KEYS, ARGV[3] do
  local count = call('ZCOUNT', KEYS[k], '-inf', now)
  if count > 0 then
    counts[k], is_any = count, true
  end
end
-- Changes nothing, but is a write: a replica refuses instead of answering from old data (that of a cluster points to its
-- primary anyway), and what follows it passes when memory is full, because to acknowledge gives memory back.
if is_any or ARGV[3] == '1' then call('PEXPIRE', KEYS[1], '0', 'GT') end
if not is_any then return { now } end

local PART = 500 -- arguments are unpacked in parts, because Lua's stack is bounded
local limit, now_us = tonumber(ARGV[1]), time[1] .. us
local visible = ('%.0f'):format(now + ARGV[2])

-- What is due in a bucket, and what is known of it.
local function look(due)
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
  return { due = due, tries = tries, receipt = receipt, found = found, ids = ids, attempts = attempts, contexts = contexts }
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
for k = 1, #KEYS, ARGV[3] do
  if counts[k] then
    local one = look(KEYS[k])
    seen[#seen + 1] = one
    claimed[#claimed + 1] = { one.receipt, counts[k] > limit and 1 or 0, one.found, one.attempts, one.contexts }
  end
end
for _, one in ipairs(seen) do
  hide(one)
end
return claimed
