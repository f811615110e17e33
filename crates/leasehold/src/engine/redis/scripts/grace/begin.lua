-- Fragment for clients with a grace: what is left of it. KEYS 1 leasehold:grace, 2 leasehold:era; ARGV 2 the identity of
-- the server that this connection was made to.
-- Another era means that the data came from another server since then, or is gone: nothing may be concluded from it.
if call('GET', KEYS[2]) ~= ARGV[2] then
  return redis.error_reply('ERA the data of this server changed; a new connection finds out how')
end
local grace_ms = call('PTTL', KEYS[1])

-- The ordinary cases are for the time after it.
local claim_free_now, release_unwanted_now = claim_free, release_unwanted
local function claim_free(k, a)
  if grace_ms <= 0 then return claim_free_now(k, a) end
end
local function release_unwanted(k, a)
  if grace_ms <= 0 then return release_unwanted_now(k, a) end
end
