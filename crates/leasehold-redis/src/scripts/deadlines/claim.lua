-- Claims what is due, oldest first within a bucket.
-- KEYS per bucket: due. In a cluster also tries and context: a node that is about to get the slot and has not all of them must
--      not answer. On one server they are not named, because that costs more than all the rest of a claim that finds nothing.
-- ARGV most per bucket, ms of visibility, how many keys a bucket has
-- false if nothing is due, or {now, {{receipt, 1 if more is due, {id, score, attempt, context or false, ..}}, ..}} with the
-- buckets where something is due
local PART = 500 -- arguments are unpacked in parts, because Lua's stack is bounded
-- Most bytes of contexts in one answer. One that takes too long to arrive would count attempts that nobody makes.
local BYTES_MAX = 16777216
local now_us, visible, bytes = now .. ('00' .. time[2]):sub(-3), after(ARGV[2]), 0

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
local function look(due, count)
  local tail = due:sub(15)
  local tries, context = 'leasehold:tries:' .. tail, 'leasehold:context:' .. tail
  local found = call('ZRANGEBYSCORE', due, '-inf', now, 'WITHSCORES', 'LIMIT', '0', ARGV[1])
  local ids, scores = {}, {}
  for i = 1, #found, 2 do
    ids[#ids + 1], scores[#scores + 1] = found[i], found[i + 1]
  end
  local has_context = call('EXISTS', context) == 1
  local most = has_context and fitting(context, ids) or #ids
  local receipt, last = now_us, call('HGET', tries, '')
  if last and tonumber(last) >= tonumber(now_us) then receipt = ('%.0f'):format(last + 1) end
  local items, visible_at, texts = {}, {}, {}
  for i = 1, most, PART do
    local j = math.min(i + PART - 1, most)
    local tried = call('HMGET', tries, unpack(ids, i, j))
    local given = has_context and call('HMGET', context, unpack(ids, i, j))
    for n = i, j do
      local before, at = tried[n - i + 1], 4 * n - 3
      local attempt = 1 + (before and tonumber(before:match('^%d+')) or 0)
      items[at], items[at + 1], items[at + 2] = ids[n], scores[n], attempt
      items[at + 3] = given and given[n - i + 1]
      visible_at[2 * n - 1], visible_at[2 * n] = visible, ids[n]
      texts[2 * n - 1], texts[2 * n] = ids[n], attempt .. ' ' .. receipt
    end
  end
  local answer = { receipt, count - most > 0 and 1 or 0, items }
  return { due = due, tries = tries, receipt = receipt, visible_at = visible_at, texts = texts, answer = answer }
end

local function hide(seen)
  for i = 1, #seen.texts, 2 * PART do
    local j = math.min(i + 2 * PART - 1, #seen.texts)
    call('ZADD', seen.due, unpack(seen.visible_at, i, j))
    call('HSET', seen.tries, unpack(seen.texts, i, j))
  end
  call('HSET', seen.tries, '', seen.receipt)
end

-- Changes nothing, but is a write: a replica refuses instead of answering from old data, and what follows passes when memory
-- is full, because to acknowledge gives memory back.
call('PEXPIRE', KEYS[1], '0', 'GT')
-- All is read before anything changes: an error on the way leaves everything as it was.
local seen, answers = {}, {}
for k = 1, #KEYS, tonumber(ARGV[3]) do
  local count = call('ZCOUNT', KEYS[k], '-inf', now)
  if count > 0 then
    seen[#seen + 1] = look(KEYS[k], count)
    answers[#answers + 1] = seen[#seen].answer
  end
end
if not seen[1] then return false end
for _, one in ipairs(seen) do
  hide(one)
end
return { now, answers }
