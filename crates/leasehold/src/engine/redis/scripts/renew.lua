-- Renews locks. Never brings back a key that is gone. Each takes its own key only, so it works in a slot that is moving.
-- KEYS K of each   ARGV per lock: id and a space, px
-- per lock 1 extended   0 not ours   {9, error}
local call, try = redis.call, redis.pcall
local replies = {}
for i = 1, #KEYS do
  local K, px = KEYS[i], ARGV[2 * i]
  if try('GETRANGE', K, '0', '32') ~= ARGV[2 * i - 1] then
    call('PEXPIRE', K, '0', 'GT') -- changes nothing, but a replica refuses it instead of answering "not ours"
    replies[i] = 0
  elseif #px > 9 then
    replies[i] = { 9, 'TTL a lease of ' .. px .. ' ms is too long' }
  else
    call('PEXPIRE', K, px)
    replies[i] = 1
  end
end
return replies
