-- Renewal and release in their one-key form, for a lock whose slot is on its way to another node of a cluster: while its
-- keys are on both, a script that names several of them is refused.
-- KEYS K
-- ARGV owner, px to renew or '' to release
-- renewal: 1 extended, 0 not ours
-- release: 1 released, {0, pttl, '0'} was not ours (pttl -2: nobody's)
local K, owner, px = KEYS[1], ARGV[1], ARGV[2]
local mine = redis.call('GET', K) == owner
if px == '' then
  if not mine then return { 0, redis.call('PTTL', K), '0' } end
  redis.call('DEL', K)
  return 1
end
if #px > 9 then return redis.error_reply('TTL a lease of ' .. px .. ' ms is too long') end
if mine then redis.call('PEXPIRE', K, px) end
return mine and 1 or 0
