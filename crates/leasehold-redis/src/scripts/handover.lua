-- Fragment: who waits, and hand-over.
-- PUBLISH is the word for publishing to a waiter's channel.
-- A waiter's entry in W is "<mode> <px> <wait ms> <live ms> <channel> <id> <rest of the owner value>", the same text on every
-- resend. The mode is 2 of one who wants K alone, 2s of a reader, 2p<take>/<limit> of permits; 2 is the layout. Its score is
-- its arrival. S has the time at which a waiter that came back was last heard of.
local ENTRY = '^2(%a?)(%d*)/?(%d*) (%d+) (%d+) (%d+) (%S+) (%x+ )(.*)$'
local DEAD_MAX = 100
-- Most entries that are read at once, and that leave in one call: bounds how long the server is busy with it. Those behind them
-- are served by the next claim or poll.
local AT_ONCE, LEAVE_MAX = 250, 1000

-- Until when a waiter counts as there: it was heard of at its arrival, or later. One that was not heard of because the clock
-- went forward is not forgotten: it keeps its arrival, and its next poll brings it back.
local function silent_after(seen, arrival, wait, live)
  return seen and seen + live * 1000 or arrival + math.min(wait, live) * 1000
end

-- Those of the first entries of W who leave it now: who is not there any more, and who fits beside `how` and `taken` and
-- those before. `asks` is there. Reads only.
local function next_in_turn(k, found, how, taken, asks)
  local fields, ids, known = {}, {}, #found / 2
  for i = 1, known do
    local entry = { found[2 * i - 1]:match(ENTRY) }
    local id = entry[8]
    if not id then
      known = i - 1
      break
    end
    fields[i], ids[i] = entry, id
  end
  local turn = { leave = {}, ids = ids, silent = 0, how = how, taken = taken, is_unknown = known == 0 }
  local seen, leave = known > 0 and call('HMGET', KEYS[k + 3], unpack(ids)), turn.leave
  for i = 1, known do
    local entry = fields[i]
    local mode = entry[1]
    if ids[i] ~= asks and silent_after(seen[i], found[2 * i], entry[5], entry[6]) - now_us <= 0 then
      turn.silent = turn.silent + 1
    elseif mode == '' then
      if how then
        turn.is_over = true
        return turn
      end
      turn.alone = entry
    else
      local fits = how ~= 'p'
      if mode == 'p' then
        turn.limit = turn.limit or limit_in_force(k, entry[3])
        fits = how ~= 's' and taken + entry[2] <= turn.limit
        taken = fits and taken + entry[2] or taken
      end
      if not fits then
        turn.is_over = true
        return turn
      end
      how = mode
      turn.how, turn.taken, turn[#turn + 1] = how, taken, entry
    end
    leave[i] = found[2 * i - 1]
    if turn.alone or turn.silent == DEAD_MAX then return turn end
  end
  turn.is_over = known * 2 < #found
  return turn
end

-- Gives K to one holder, who is told unless it asks. A grant that reached nobody is the next one's. Others may wait, so K is
-- marked.
local function give_alone(k, waiter, asks)
  local _, _, _, px, _, _, channel, id, rest = unpack(waiter)
  local fence = next_fence(KEYS[k + 1])
  call('SET', KEYS[k], id .. '0' .. fence .. ' ' .. rest, 'PX', px)
  if id == asks or try(PUBLISH, channel, id .. fence) ~= 0 then return fence end
  call('DEL', KEYS[k])
end

-- Gives K to all of them together; one message for all of a channel. Returns the first fence, how many have it, the fence of
-- the one who asks, and how many permits are taken then.
local function give_together(k, turn, is_new, asks)
  local fence = tonumber(next_fence(KEYS[k + 1]))
  local ends, held, longest, messages, mine, end_by_px = {}, {}, 0, {}, nil, {}
  for i = 1, #turn do
    local entry = turn[i]
    local take, px, channel, id = entry[2], entry[4], entry[7], entry[8]
    if take == '' then take = '0' end
    if not end_by_px[px] then
      end_by_px[px], longest = end_of(px), math.max(longest, px)
    end
    local own = ('%.0f'):format(fence + i - 1)
    ends[2 * i - 1], ends[2 * i] = end_by_px[px], id .. take
    held[2 * i - 1], held[2 * i] = id, own .. ' ' .. take .. ' ' .. entry[9]
    if id == asks then
      mine = own
    else
      local sent = messages[channel]
      if not sent then
        sent = {}
        messages[channel] = sent
      end
      sent[#sent + 1] = id .. own
    end
  end
  if #turn > 1 then call('SET', KEYS[k + 1], ('%.0f'):format(fence + #turn - 1)) end
  admit(k, is_new, turn.how, turn.taken, ends, held, ('%.0f'):format(longest))
  local reached = {}
  for channel, sent in pairs(messages) do
    reached[channel] = try(PUBLISH, channel, table.concat(sent, ' ')) ~= 0
  end
  -- What reached nobody is the next one's.
  local first, count, unreached, permits = nil, 0, {}, 0
  for i = 1, #turn do
    if reached[turn[i][7]] or turn[i][8] == asks then
      first, count = first or ('%.0f'):format(fence + i - 1), count + 1
    else
      unreached[#unreached + 1], permits = ends[2 * i], permits + (tonumber(turn[i][2]) or 0)
    end
  end
  if unreached[1] then
    remove_members(k, unreached)
    if permits > 0 then call('SET', KEYS[k], 'leasehold:permits ' .. turn.taken - permits, 'KEEPTTL') end
  end
  return first, count, mine, turn.taken - permits
end

-- Gives what is free of K to those whose turn it is; `how` and `taken` are what is held. The one who asks is not told.
-- Returns what happened: 'given', with the first fence, to how many, and the fence of the one who asks; 'nobody';
-- 'again' if 100 entries were silent and more wait; 'unknown' if the first entry has a layout that this version does not know.
-- The first write takes entries from W: it passes when memory is full, and what follows it then does too; a replica refuses it.
local function hand_over(k, how, taken, asks)
  local W, S = KEYS[k + 2], KEYS[k + 3]
  local first, count, mine, silent, left, at_once = nil, 0, nil, 0, 0, 1
  -- In a grace those who wait keep their places.
  while grace_ms <= 0 and how ~= 'x' and left < LEAVE_MAX do
    local found = call('ZRANGE', W, 0, at_once - 1, 'WITHSCORES')
    if not found[1] then break end
    local turn = next_in_turn(k, found, how, taken, asks)
    if turn.is_unknown and count == 0 then return 'unknown' end
    if turn.leave[1] then
      call('ZREM', W, unpack(turn.leave))
      call('HDEL', S, unpack(turn.ids, 1, #turn.leave))
    end
    if turn.alone then
      local fence = give_alone(k, turn.alone, asks)
      if fence then return 'given', fence, 1, turn.alone[8] == asks and fence end
      silent = silent + 1
    elseif turn[1] then
      local fence, given, own, are_left = give_together(k, turn, not how, asks)
      first, count, mine, silent = first or fence, count + given, mine or own, silent + #turn - given
      how, taken = turn.how, are_left
      if given == 0 then
        local _, now_how, now_taken = holders(k)
        how, taken = now_how, now_taken
      end
    end
    silent, left = silent + turn.silent, left + #turn.leave
    if turn.is_over or turn.is_unknown then break end
    if silent >= DEAD_MAX and count == 0 then return call('EXISTS', W) == 1 and 'again' or 'nobody' end
    local are_all = #found < 2 * at_once and 2 * #turn.leave == #found
    if are_all or turn.limit and taken - turn.limit >= 0 then break end
    -- The first ones mostly are all who can have it.
    at_once = turn.alone and 1 or math.min(at_once * 8, AT_ONCE)
  end
  if count > 0 then return 'given', first, count, mine end
  return 'nobody'
end

-- Removes waiters who were silent for too long among the first, and returns whether there were any.
local function remove_silent(W, S)
  local first, removed = call('ZRANGE', W, 0, DEAD_MAX - 1, 'WITHSCORES'), false
  for i = 1, #first, 2 do
    local _, _, _, _, wait, live, _, id = first[i]:match(ENTRY)
    if wait and silent_after(call('HGET', S, id), first[i + 1], wait, live) - now_us <= 0 then
      call('ZREM', W, first[i])
      call('HDEL', S, id)
      removed = true
    end
  end
  return removed
end
