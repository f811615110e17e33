-- Renews readers and permits. Never brings back one whose lease has run out. `members.lua` says how they lie.
-- KEYS per lease K Z H   ARGV per lease: id and a space, px
-- per lease 1 extended   0 not ours   {9, error}
local try, KEYS, ARGV, replies = redis.pcall, KEYS, ARGV, {}
local time = try('TIME')
local now = time[1] * 1000000 + time[2]
for i = 1, #ARGV / 2 do
  local k, id, px = 3 * i - 2, ARGV[2 * i - 1], ARGV[2 * i]
  local K, Z, H = KEYS[k], KEYS[k + 1], KEYS[k + 2]
  local text = try('GET', K)
  local held = type(text) == 'string' and text:find('^leasehold:[sp]') and try('HGET', H, id)
  local take = type(held) == 'string' and held:match('^%d+ (%d+) ')
  local ends = take and try('ZSCORE', Z, id .. take)
  local done
  if #px > 9 then
    done = { err = 'TTL a lease of ' .. px .. ' ms is too long' }
  elseif not ends or ends - now <= 0 then
    done = try('PEXPIRE', K, '0', 'GT') -- changes nothing, but a replica refuses it instead of answering "not ours"
  else
    done = try('PEXPIRE', K, px, 'GT')
    if done == 1 then
      try('PEXPIRE', Z, px, 'GT')
      try('PEXPIRE', H, px, 'GT')
    end
    if type(done) == 'number' then
      try('ZADD', Z, 'XX', ('%.0f'):format(now + px * 1000), id .. take)
      done = 1
    end
  end
  replies[i] = type(done) == 'table' and { 9, done.err } or done
end
return replies
