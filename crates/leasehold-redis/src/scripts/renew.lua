-- Renews locks. Never brings back a key that is gone. Each takes its own key only, so it works in a slot that is moving.
-- KEYS K of each   ARGV per lock: id and a space, px
-- per lock 1 extended   0 not ours   {9, error}
local call, try = redis.call, redis.pcall
local replies = {}
for i = 1, #KEYS do
  local K, px = KEYS[i], ARGV[2 * i]
  local holder, done = try('GET', K), 1
  if type(holder) == 'table' then
    done = holder
  elseif not holder or holder:sub(1, 33) ~= ARGV[2 * i - 1] then
    done = try('PEXPIRE', K, '0', 'GT') -- changes nothing, but a replica refuses it instead of answering "not ours"
  elseif #px > 9 then
    done = { err = 'TTL a lease of ' .. px .. ' ms is too long' }
  else
    done = try('PEXPIRE', K, px)
  end
  replies[i] = type(done) == 'table' and { 9, done.err } or done
end
return replies
