-- Fragment: those who hold a lock together, readers or holders of permits.
-- K is then "leasehold:shared" or "leasehold:permits <taken>" and lasts as long as the longest of their leases. Z has each of
-- them by the end of its lease, in microseconds, as "<id> <take>": 0 is a reader, other numbers are permits. H has "<fence>
-- <take> <rest of the owner value>" by id. Z and H count only while K says so: whoever writes such a K anew deletes them first.
-- L is "<limit> <limit that the first user named>", and stays for a day after the last use.
local LIMIT_MS = '86400000'

-- Takes members out of Z and H.
local function remove_members(k, members)
  local ids = {}
  for i = 1, #members do ids[i] = members[i]:sub(1, 33) end
  call('ZREM', KEYS[k + 4], unpack(members))
  call('HDEL', KEYS[k + 5], unpack(ids))
end

-- Who holds K: its text, how, and how many permits are taken. How is nil for nobody, 'x' for one holder, 's' for readers,
-- 'p' for permits. Those whose lease has run out leave; with the last of them K is nobody's.
local function holders(k)
  local text = call('GET', KEYS[k])
  if not text then return nil, nil, 0 end
  local how, taken = text:match('^leasehold:([sp])%a+ ?(%d*)$')
  if not how then return text, 'x', 0 end
  taken = tonumber(taken) or 0
  local Z, left = KEYS[k + 4], taken
  repeat
    local over = call('ZRANGE', Z, '-inf', now, 'BYSCORE', 'LIMIT', 0, 1000)
    if over[1] then remove_members(k, over) end
    for i = 1, #over do left = left - over[i]:sub(34) end
  until not over[1000]
  if call('EXISTS', Z) == 0 then
    call('DEL', KEYS[k])
    return nil, nil, 0
  end
  if left ~= taken then call('SET', KEYS[k], 'leasehold:permits ' .. left, 'KEEPTTL') end
  return text, how, left
end

-- Lets the keys of members last for `px` at least; at first they have no end.
local function prolong(k, px, is_new)
  if is_new then
    call('PEXPIRE', KEYS[k + 4], px)
    call('PEXPIRE', KEYS[k + 5], px)
  elseif call('PEXPIRE', KEYS[k], px, 'GT') == 1 then
    call('PEXPIRE', KEYS[k + 4], px, 'GT')
    call('PEXPIRE', KEYS[k + 5], px, 'GT')
  end
end

-- Writes members down beside those who hold K in the same way, if any do. `ends` and `held` are arguments of ZADD and HSET, `px`
-- is the longest of their leases, `taken` counts all permits.
local function admit(k, is_new, how, taken, ends, held, px)
  local text = how == 's' and 'leasehold:shared' or 'leasehold:permits ' .. taken
  if is_new then
    call('DEL', KEYS[k + 4], KEYS[k + 5])
    call('SET', KEYS[k], text, 'PX', px)
  elseif how == 'p' then
    call('SET', KEYS[k], text, 'KEEPTTL')
  end
  call('ZADD', KEYS[k + 4], unpack(ends))
  call('HSET', KEYS[k + 5], unpack(held))
  prolong(k, px, is_new)
end

-- When a lease ends that begins now.
local function end_of(px)
  return ('%.0f'):format(now_us + px * 1000)
end

-- Extends the lease of a member, whose text in H is `held`, and returns its fence.
local function extend_member(k, id, held, px)
  local fence, take = held:match('^(%d+) (%d+) ')
  call('ZADD', KEYS[k + 4], 'XX', end_of(px), id .. take)
  prolong(k, px)
  return fence
end

-- The number of permits in force; `of` if nobody has named one. And the first that was named.
local function limit_in_force(k, of)
  local limit, first = (call('GET', KEYS[k + 6]) or ''):match('^(%d+) (%d+)$')
  return tonumber(limit or of), first
end

-- What a claim is told of who holds K: the text of one holder; of members how many there are, and of the first few
-- "<id> <fence> <rest>", take and the ms left, one after the other. And the ms until the first of the leases ends.
local SHOWN_MAX = 10
local function tell_holders(k, text, how)
  if how == nil or how == 'x' then return text or false, call('PTTL', KEYS[k]) end
  local first = call('ZRANGE', KEYS[k + 4], 0, SHOWN_MAX - 1, 'WITHSCORES')
  local told = { call('ZCARD', KEYS[k + 4]) }
  for i = 1, #first, 2 do
    local id = first[i]:sub(1, 33)
    local fence, take, rest = (call('HGET', KEYS[k + 5], id) or ''):match('^(%d+) (%d+) (.*)$')
    if fence then
      local left = math.ceil((first[i + 1] - now_us) / 1000)
      told[#told + 1], told[#told + 2], told[#told + 3] = id .. fence .. ' ' .. rest, take, left
    end
  end
  return told, math.ceil((first[2] - now_us) / 1000)
end
