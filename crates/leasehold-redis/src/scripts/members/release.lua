-- The ordinary releases of readers and of permits: nobody waits. Flat, as `claim_free.lua`; `members.lua` says how they lie.
-- KEYS per release K Z H W   ARGV id and a space of each
-- per release 1: released, or nil: nothing was done, and the release of `dispatch.lua` finds out; of one without the list
local call, KEYS, ARGV = redis.call, KEYS, ARGV
local count, replies = #ARGV, {}
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
for i = 1, count do
  local k, id = 4 * i - 3, ARGV[i]
  local K, Z, H = KEYS[k], KEYS[k + 1], KEYS[k + 2]
  local text = redis.pcall('GET', K)
  local is_ours = type(text) == 'string' and text:find('^leasehold:[sp]') and call('EXISTS', KEYS[k + 3]) == 0
  local held = is_ours and call('HGET', H, id)
  local take = held and held:match('^%d+ (%d+) ')
  local ends = take and call('ZSCORE', Z, id .. take)
  replies[i] = false
  if ends and ends - now > 0 then
    call('ZREM', Z, id .. take)
    call('HDEL', H, id)
    if call('EXISTS', Z) == 0 then
      call('DEL', K)
    elseif take ~= '0' then
      call('SET', K, 'leasehold:permits ' .. text:match('%d+$') - take, 'KEEPTTL')
    end
    replies[i] = 1
  end
end
if count == 1 then return replies[1] end
return replies
