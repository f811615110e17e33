-- Fragment: changes of what is held.

-- Makes the holder of K a reader, or its only reader the one who holds it, and renews its lease. Idempotent.
-- keys K F W S Z H L   arguments id and a space, rest of the owner value, px, s: to a reader, x: to one who holds it alone
-- {1, fence}   done
-- 0            not ours
-- 2            others read too
-- {8, p}       it holds permits
local function convert(k, a)
  local K, id, rest, px, to = KEYS[k], ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3]
  check_px(px)
  local text, how, taken = holders(k)
  call('PEXPIRE', K, '0', 'GT') -- changes nothing, but a replica refuses it instead of answering "not ours"
  if how == 'x' then
    if text:sub(1, 33) ~= id then return 0 end
    local fence = ('%.0f'):format(tonumber(text:match('^%x+ (%d+) ')))
    if to == 'x' then
      call('PEXPIRE', K, px)
      return { 1, fence }
    end
    admit(k, true, 's', 0, { end_of(px), id .. '0' }, { id, fence .. ' 0 ' .. rest }, px)
    hand_over(k, 's', 0)
    return { 1, fence }
  end
  local held = how and call('HGET', KEYS[k + 5], id)
  if not held then return 0 end
  if how == 'p' then return { 8, how } end
  if to == 's' then return { 1, extend_member(k, id, held, px) } end
  if call('ZCARD', KEYS[k + 4]) > 1 then return 2 end
  local fence = next_fence(KEYS[k + 1])
  call('SET', K, id .. '0' .. fence .. ' ' .. rest, 'PX', px) -- marked: others may wait
  call('DEL', KEYS[k + 4], KEYS[k + 5])
  return { 1, fence }
end

-- Changes how many permits there are. Nobody loses any; those whose turn it is get theirs.
-- keys K F W S Z H L   arguments limit
-- 1          done
-- {8, how}   in use as another kind of lock
local function set_limit(k, a)
  local _, how, taken = holders(k)
  local first = call('ZRANGE', KEYS[k + 2], 0, 0)[1]
  if not how and first and not first:find('^2p') then how = 'x' end
  call('PEXPIRE', KEYS[k], '0', 'GT') -- as in convert
  if how == 'x' or how == 's' then return { 8, how } end
  local _, named = limit_in_force(k, ARGV[a])
  call('SET', KEYS[k + 6], ARGV[a] .. ' ' .. (named or ARGV[a]), 'PX', LIMIT_MS)
  hand_over(k, how, taken)
  return 1
end

-- Ends the lease of a member in a while, although it was given back. It keeps its fence under an id that is nobody's: a
-- renewal or a claim that was on its way changes nothing any more. Idempotent.
-- keys K F W S Z H L   arguments id and a space, px
-- 1 done   0 not ours
local function close_member(k, a)
  local id, px = ARGV[a], ARGV[a + 1]
  check_px(px)
  local _, how = holders(k)
  call('PEXPIRE', KEYS[k], '0', 'GT') -- as in convert
  if not how or how == 'x' then return 0 end
  local closed = ('f'):rep(16) .. id:sub(17)
  local held = call('HGET', KEYS[k + 5], id)
  if held then
    local take = held:match('^%d+ (%d+) ')
    call('ZADD', KEYS[k + 4], now, closed .. take)
    call('HSET', KEYS[k + 5], closed, held)
    remove_members(k, { id .. take })
  else
    held = call('HGET', KEYS[k + 5], closed)
  end
  if not held then return 0 end
  extend_member(k, closed, held, px)
  return 1
end

-- Gives K to the first waiter with this holder data who wants it alone, ahead of the queue. Nobody else holds it in between.
-- keys K F W S Z H L   arguments id and a space, rest of the next one's owner value
-- {1, fence}   given
-- 0            not ours
-- 2            nobody like that waits
local function hand_to(k, a)
  local K, W, S = KEYS[k], KEYS[k + 2], KEYS[k + 3]
  local text, how = holders(k)
  call('PEXPIRE', K, '0', 'GT') -- as in convert
  if how ~= 'x' or text:sub(1, 33) ~= ARGV[a] then return 0 end
  local px, from, found = call('PTTL', K), 0, nil
  repeat
    found = grace_ms <= 0 and call('ZRANGE', W, from, from + AT_ONCE - 1, 'WITHSCORES') or {}
    for i = 1, #found, 2 do
      local waiter = { found[i]:match(ENTRY) }
      local is_meant = waiter[1] == '' and waiter[9] == ARGV[a + 1]
      local seen = is_meant and call('HGET', S, waiter[8])
      if is_meant and silent_after(seen, found[i + 1], waiter[5], waiter[6]) - now_us > 0 then
        call('ZREM', W, found[i])
        call('HDEL', S, waiter[8])
        local fence = give_alone(k, waiter)
        if fence then return { 1, fence } end
        call('SET', K, text, 'PX', px) -- it was not reached
        return 2
      end
    end
    from = from + AT_ONCE
  until #found < 2 * AT_ONCE
  return 2
end
