-- What is known about some names. Reads only.
-- KEYS per name: K W Z H, then L N, or F where each name has its own
-- ARGV 1 most waiters to list · 2 most members to list · 3 keys per name
-- per name {holder or false, pttl, fence, number of waiters, {entry, waiting for us, ...}}; holder is 0 for another kind of key;
-- of a lock in Redisson's format it is what N has of it, if that is still about its field
-- and then {number of members, permits taken, {"<id> <fence> <rest>", take, ms left, ...}}, limit as L has it, or ''
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local now_text = ('%.0f'):format(now)
local found = {}
for k = 1, #KEYS, tonumber(ARGV[3]) do
  local K, W, F = KEYS[k], KEYS[k + 1], ARGV[3] == '5' and KEYS[k + 4]
  local holder = redis.pcall('GET', K)
  if type(holder) == 'table' then
    holder = 0
    if not F and redis.pcall('HLEN', K) == 1 then
      local field, text = call('HGETALL', K)[1], call('GET', KEYS[k + 5])
      local is_about = field == 'leasehold:closed' or text and field:gsub('%-', ''):sub(1, 32) == text:sub(1, 32)
      holder = text and is_about and text or 0
    end
  end
  local waiters = {}
  local count = call('ZCARD', W)
  if count > 0 and ARGV[1] ~= '0' then
    local entries = call('ZRANGE', W, 0, ARGV[1] - 1, 'WITHSCORES')
    for i = 1, #entries, 2 do
      waiters[i], waiters[i + 1] = entries[i], ('%.0f'):format(math.max(0, now - entries[i + 1]))
    end
  end
  local seen = { holder, call('PTTL', K), F and (call('GET', F) or '0'):match('^%d+') or '0', count, waiters }
  local Z, H, members, total, taken = KEYS[k + 2], KEYS[k + 3], {}, 0, 0
  if type(holder) == 'string' and holder:find('^leasehold:[sp]') then
    total = call('ZCOUNT', Z, '(' .. now_text, '+inf')
    local live = call('ZRANGE', Z, '(' .. now_text, '+inf', 'BYSCORE', 'LIMIT', 0, ARGV[2], 'WITHSCORES')
    for i = 1, #live, 2 do
      local id = live[i]:sub(1, 33)
      local fence, take, rest = (call('HGET', H, id) or ''):match('^(%d+) (%d+) (.*)$')
      local n = #members
      if fence then
        members[n + 1], members[n + 2] = id .. fence .. ' ' .. rest, take
        members[n + 3] = math.ceil((live[i + 1] - now) / 1000)
      end
    end
    taken = tonumber(holder:match('%d+$')) or 0
    local over = taken > 0 and call('ZRANGE', Z, '-inf', now_text, 'BYSCORE') or {}
    for i = 1, #over do taken = taken - over[i]:sub(34) end
    seen[1] = false
  end
  seen[6], seen[7] = { total, taken, members }, not F and call('GET', KEYS[k + 4]) or ''
  found[#found + 1] = seen
end
return found
