-- The ordinary releases of readers and of permits: nobody waits. Flat, as `claim_free.lua`; `members.lua` says how they lie.
-- KEYS per release K Z H W   ARGV per release: id and a space, take (0: a reader)
-- per release 1: released, or nil: nothing was done, and the release of `dispatch.lua` finds out; of one without the list
local call, KEYS, ARGV = redis.call, KEYS, ARGV
local count, replies = #ARGV / 2, {}
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
for i = 1, count do
  local k, id, take = 4 * i - 3, ARGV[2 * i - 1], ARGV[2 * i]
  local K, Z, H, member = KEYS[k], KEYS[k + 1], KEYS[k + 2], id .. take
  local text = redis.pcall('GET', K)
  local is_ours = type(text) == 'string' and text:find('^leasehold:[sp]') and call('EXISTS', KEYS[k + 3]) == 0
  local ends = is_ours and call('ZSCORE', Z, member)
  replies[i] = false
  if ends and ends - now > 0 then
    if call('ZCARD', Z) == 1 then
      call('DEL', K, Z, H)
    else
      call('ZREM', Z, member)
      call('HDEL', H, id)
      if take ~= '0' then call('SET', K, 'leasehold:permits ' .. text:match('%d+$') - take, 'KEEPTTL') end
    end
    replies[i] = 1
  end
end
if count == 1 then return replies[1] end
return replies
