-- The ordinary claims of readers and of permits: nobody waits, and there is room beside those who hold it already, by an attempt
-- that has not ended. Flat, as `claim_free.lua`; `members.lua` says how they lie.
-- KEYS F, then per claim K Z H L W G
-- ARGV per claim: id and a space, rest of the owner value, px, take (0: a reader), limit of permits or ''
-- per claim its fence, or nil: nothing was done, and the claim of `dispatch.lua` finds out; of one claim without the list
local call, KEYS, ARGV = redis.call, KEYS, ARGV
local F, count, replies = KEYS[1], #ARGV / 5, {}
local time = call('TIME')
local us = time[2]
local now = time[1] .. (#us == 6 and us or ('000000'):sub(1 + #us) .. us)
for i = 1, count do
  local k, a = 6 * i - 4, 5 * i - 4
  local K, Z, H, L = KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3]
  local id, px, take, of = ARGV[a], ARGV[a + 2], ARGV[a + 3], ARGV[a + 4]
  local W, G, next_text, text, is_open, first = KEYS[k + 4], KEYS[k + 5], 'leasehold:shared', nil, false, nil
  local is_new = call('EXISTS', K, W, G, Z, H) == 0 -- not if somebody deleted K and left its members
  if not is_new then text = call('EXISTS', W, G) == 0 and redis.pcall('GET', K) end
  if #px > 9 or not is_new and type(text) ~= 'string' then
    is_open = false
  elseif of == '' then
    is_open = is_new or text == next_text
  else
    local taken = is_new and 0 or tonumber(text:match('^leasehold:permits (%d+)$'))
    local limit
    limit, first = (call('GET', L) or of .. ' '):match('^(%d+) (%d*)$')
    is_open = taken and limit and taken + take - limit <= 0 and (of == limit or of == first)
    next_text = is_open and 'leasehold:permits ' .. taken + take
    if is_open and first == '' then call('SET', L, of .. ' ' .. of, 'PX', '86400000') end
  end
  replies[i] = false
  -- One that is there already was granted before.
  if is_open and (is_new or call('HEXISTS', H, id) == 0) then
    local fence = now
    local last = call('SET', F, fence, 'GET')
    if last and last - fence >= 0 then
      if last - 9007199254740991 >= 0 then
        call('SET', F, last)
        return redis.error_reply('FENCE the last fence was given')
      end
      fence = ('%.0f'):format(last + 1)
      call('SET', F, fence)
    end
    if is_new then
      call('SET', K, next_text, 'PX', px)
    elseif of ~= '' then
      call('SET', K, next_text, 'KEEPTTL')
    end
    call('ZADD', Z, ('%.0f'):format(now + px * 1000), id .. take)
    call('HSET', H, id, fence .. ' ' .. take .. ' ' .. ARGV[a + 1])
    if is_new then
      call('PEXPIRE', Z, px)
      call('PEXPIRE', H, px)
    elseif call('PEXPIRE', K, px, 'GT') == 1 then
      call('PEXPIRE', Z, px, 'GT')
      call('PEXPIRE', H, px, 'GT')
    end
    -- Not earlier: it passes when memory is full, and what follows it then does too.
    if first and first ~= '' then call('PEXPIRE', L, '86400000') end
    replies[i] = fence
  end
end
if count == 1 then return replies[1] end
return replies
