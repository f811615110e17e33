-- Fragment: begins a record. Idempotent for its owner.
-- keys K B V G   arguments owner, px, fingerprint or '-', "CHANNEL ID" to be told of its end ('': nobody)
-- <fence>        it is ours, also if it was already: the lease is refreshed
-- {text, pttl}   something else is there
-- {5}            this attempt has ended
local function begin(k, a)
  local K, B, V, G = KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3]
  local owner, px, fingerprint, watcher = ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3]
  check_px(px)
  if call('EXISTS', K, G) == 0 then
    -- It may have been begun at the server before this one, or even done.
    if grace_ms > 0 then
      error({ err = ('GRACE the primary is new: nothing is begun for %d ms'):format(grace_ms) })
    end
    local fence = next_fence(B)
    call('PEXPIRE', B, ('%.0f'):format(KEPT + math.max(0, fence - now_us) / 1000))
    call('SET', K, 'leasehold:1 running ' .. fence .. ' ' .. fingerprint .. ' ' .. owner, 'PX', px)
    return fence
  end
  if call('EXISTS', G) == 1 then return { 5 } end

  local found = call('GET', K)
  local fence, theirs, rest = running(found)
  local same = theirs == fingerprint or theirs == '-' or fingerprint == '-'
  if rest and same and found:sub(rest) == owner then
    call('PEXPIRE', K, px)
    return fence
  end
  -- Changes nothing, but is a write: a replica refuses instead of answering from old data, and what follows it passes when
  -- memory is full.
  call('PEXPIRE', K, 0, 'GT')
  local pttl = call('PTTL', K)
  if rest and same and watcher ~= '' and call('SCARD', V) < WATCHERS_MAX then
    call('SADD', V, watcher)
    -- A watcher asks again when the lease that it saw is over.
    call('PEXPIRE', V, ('%.0f'):format(math.max(pttl, 0) + 60000))
  end
  return { found, pttl }
end
