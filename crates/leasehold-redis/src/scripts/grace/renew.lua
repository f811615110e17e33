-- Fragment for clients with a grace: renewal. Until it is over, a holder whom this server forgot is written down again,
-- unless somebody came after it.
-- keys K F W S Z H L   arguments id and a space, rest of the owner value, px, fence, take ('': alone, 0: as a reader)
-- 1 extended   0 not ours

-- The highest fence of those who hold K, as a number; 0 of another library's holder, nil of nobody.
local function highest_fence(k, text, how)
  if not how then return nil end
  if how == 'x' then return fence_of(text) end
  local highest, members = 0, call('HGETALL', KEYS[k + 5])
  for i = 2, #members, 2 do highest = math.max(highest, members[i]:match('^%d+')) end
  return highest
end

local function renew(k, a)
  local K, F, H = KEYS[k], KEYS[k + 1], KEYS[k + 5]
  local id, rest, px, fence, take = ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], ARGV[a + 4]
  check_px(px)
  local text, how, taken = holders(k)
  call('PEXPIRE', K, '0', 'GT') -- changes nothing, but a replica refuses it instead of answering "not ours"
  if how == 'x' then
    if text:sub(1, 33) == id then return call('PEXPIRE', K, px) end
  else
    local held = how and call('HGET', H, id)
    if held then
      extend_member(k, id, held, px)
      return 1
    end
  end
  if grace_ms <= 0 then return 0 end
  -- Whoever holds it with an earlier fence gave it back to the old server, which told nobody; but members go together with
  -- members. One of another library has no fence, so nobody knows when it came.
  local is_beside = take ~= '' and how == (take == '0' and 's' or 'p')
  local theirs, mine = highest_fence(k, text, how) or 1, tonumber(fence)
  if not is_beside and (theirs == 0 or theirs - mine >= 0) then return 0 end
  if tonumber(call('GET', F) or 0) < mine then call('SET', F, fence) end
  if take == '' then
    call('SET', K, id .. '0' .. fence .. ' ' .. rest, 'PX', px) -- marked: others may wait
    return 1
  end
  if not is_beside then taken = 0 end
  local ends, held = { end_of(px), id .. take }, { id, fence .. ' ' .. take .. ' ' .. rest }
  admit(k, not is_beside, take == '0' and 's' or 'p', taken + take, ends, held, px)
  return 1
end
