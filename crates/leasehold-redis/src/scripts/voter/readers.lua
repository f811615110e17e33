-- Fragment: the readers that a node has voted for. They lie as in `members.lua`: K is "leasehold:shared" and lasts as long as
-- the longest of their leases, Z has "<id> 0" by the end of the lease in microseconds, H has "<fence> 0 <rest of the owner
-- value>" by id. Z and H count only while K says so: whoever writes such a K anew deletes them first.
local SHARED = 'leasehold:shared'

-- What is under K, of which `found` was read: readers whose lease is over leave, and with the last of them K is nobody's.
local function without_expired(found, K, Z, H)
  if found ~= SHARED then return found end
  if not now then read_clock() end
  repeat
    local over = call('ZRANGE', Z, '-inf', now, 'BYSCORE', 'LIMIT', 0, 1000)
    local ids = {}
    for i = 1, #over do ids[i] = over[i]:sub(1, 33) end
    if ids[1] then
      call('ZREM', Z, unpack(over))
      call('HDEL', H, unpack(ids))
    end
  until not over[1000]
  if call('EXISTS', Z) == 1 then return found end
  call('DEL', K)
  return false
end

-- Writes a reader down, or a later end of its lease; `holder` is what is under K. The clock was read.
local function write_reader(holder, K, Z, H, owner, fence, px)
  local id = owner:sub(1, 33)
  if not holder then
    call('DEL', Z, H)
    call('SET', K, SHARED, 'PX', px)
  end
  call('ZADD', Z, ('%.0f'):format(now_us + px * 1000), id .. '0')
  call('HSET', H, id, fence .. ' 0 ' .. owner:sub(34))
  if not holder then
    call('PEXPIRE', Z, px)
    call('PEXPIRE', H, px)
  elseif call('PEXPIRE', K, px, 'GT') == 1 then
    call('PEXPIRE', Z, px, 'GT')
    call('PEXPIRE', H, px, 'GT')
  end
end

-- The fence under which the owner reads, as text; nil if it does not.
local function fence_of_reader(holder, H, owner)
  return holder == SHARED and (call('HGET', H, owner:sub(1, 33)) or ''):match('^%d+') or nil
end
