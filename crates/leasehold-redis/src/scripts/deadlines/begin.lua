-- Fragment: what the scripts of deadlines share; each of the others is a script together with it. The keys of a bucket:
--   due       sorted set, id by when it is due (or visible again) in ms
--   tries     hash, "ATTEMPT RECEIPT" of ids that were claimed; under the empty field the last receipt of the bucket
--   context   hash, what was given with an id
--   dead      hash, "ATTEMPTS BURIED_MS WHY_BYTES WHY", then a space and the context if there is one
local call, KEYS, ARGV = redis.call, KEYS, ARGV

-- The server's time in milliseconds, as text: numbers cost a conversion at every command.
local time = call('TIME')
local now = time[1] .. ('00000' .. time[2]):sub(-6, -4)

-- So many milliseconds from now.
local function after(ms)
  return ('%.0f'):format(now + ms)
end
