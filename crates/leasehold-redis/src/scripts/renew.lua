-- Renews locks. Never brings back a key that is gone. Each takes its own key only, so it works in a slot that is moving.
-- KEYS K of each   ARGV per lock: px, unless the lock before has the same, and id and a space; in the end 1 if the server
-- is to report changes from here on (`CLIENT TRACKING`): it reports on what was read after its last write
-- 1 if all were extended; otherwise per lock 1 extended   0 not ours   {9, error}
local try, KEYS, ARGV = redis.pcall, KEYS, ARGV
local px, a, replies = '', 0, nil
-- At once: a server before 7.2 remembers all KEYS for every command that reads.
local held = try('MGET', unpack(KEYS))
if held.err then return held end
for i = 1, #KEYS do
  local K = KEYS[i]
  a = a + 1
  if #ARGV[a] < 33 then
    px, a = ARGV[a], a + 1
  end
  local is_ours, done = held[i] and held[i]:sub(1, 33) == ARGV[a], nil
  if is_ours and #px <= 9 then
    done = try('PEXPIRE', K, px)
  elseif is_ours then
    done = { err = 'TTL a lease of ' .. px .. ' ms is too long' }
  else
    done = try('PEXPIRE', K, '0', 'GT') -- changes nothing, but a replica refuses it instead of answering "not ours"
  end
  if done ~= 1 then
    if not replies then
      replies = {}
      for n = 1, #KEYS do replies[n] = 1 end
    end
    replies[i] = type(done) == 'table' and { 9, done.err } or done
  end
end
if ARGV[a + 1] then try('EXISTS', unpack(KEYS)) end
return replies or 1
