-- The ordinary operations of a voter, many in one call: withdrawals while nobody waits, and votes for locks that nobody
-- holds or waits for. Flat, because making a function takes longer than a command, and with commands for all of them where
-- that is possible. Each is done on its own: one that fails, or that is not ordinary, leaves the others alone.
-- KEYS K of each withdrawal, then W of each; if there are votes Q the node's record · H highest fence · L floor of fences,
--      then W G of each vote (G: tombstone of its attempt), then K of each, then F of each
-- ARGV how many withdrawals, and per withdrawal id and a space; if there are votes the expected record: its text up to the
--      data set, the data set, the longest px, and per vote, by hint: px, unless it is that of the vote before · text of K
--      under the hint · hint
-- answers 1 if all are done, otherwise a list with one reply per operation:
--   1 done, under the hint   <fence> voted under a later one   2 no vote to withdraw: the lock is free
--   8 has another record than expected, or another data set
--   0 any other case: nothing was done, and `vote.lua` and `withdraw.lua` find out
local try, KEYS, ARGV = redis.pcall, KEYS, ARGV
local HINT_MAX_US = 60000000
-- F is kept for a day, and for the lead of a hint over the clock.
local KEEP_MS, KEEP_HINT_MS = 86400000, '86460000'

local replies, done, count = {}, 0, tonumber(ARGV[1])
if count > 0 then
  local holders = try('MGET', unpack(KEYS, 1, count))
  local waited_for = try('EXISTS', unpack(KEYS, count + 1, 2 * count))
  local ours, places = {}, {}
  for i = 1, count do
    local K, W, holder = KEYS[i], KEYS[count + i], holders[i]
    replies[i] = 0
    if holder and holder:sub(1, 33) == ARGV[i + 1] then
      if waited_for == 0 or try('EXISTS', W) == 0 then
        places[#places + 1] = i
        ours[#places] = K
      end
    elseif holder == false and try('EXISTS', K, W) == 0 and try('DEL', K) == 0 then
      -- With a write, so that a replica refuses instead of answering from old data.
      replies[i] = 2
    end
  end
  -- A withdrawal may be there twice.
  if ours[1] and type(try('DEL', unpack(ours))) == 'number' then
    for _, i in ipairs(places) do replies[i] = 1 end
    done = #places
  end
end

local k, a = 2 * count + 3, count + 2
local Q, H, L = unpack(KEYS, k - 2, k)
if not Q then return done == count and 1 or replies end
local data, most, top = ARGV[a + 1], ARGV[a + 2], tonumber(ARGV[#ARGV])

-- What is true for all votes of the call: the node has the expected record over the same data set, and a clock near the
-- client's. Its highest fence is raised before the first of them counts; what it was is above all of the node's fences.
local now_us, highest
local no = 8
if try('GET', Q) == ARGV[a] .. data .. ' ' .. most .. ' votes' then
  local info, time = try('INFO', 'replication'), try('TIME')
  if type(info) ~= 'string' or not time[1] then
    no = 0
  elseif info:find('master_replid:' .. data .. '\r', 1, true) then
    no = 0
    now_us = time[1] * 1000000 + time[2]
    if top - now_us <= HINT_MAX_US then
      local last = try('SET', H, ARGV[#ARGV], 'GET')
      highest = tonumber(last or 0)
      if highest and highest > top then try('SET', H, last) end
    end
  end
end

local votes = (#KEYS - k) / 4
local first_K, first_F = k + 2 * votes, k + 3 * votes
local awaited = highest and try('EXISTS', unpack(KEYS, k + 1, first_K))
-- numbers: fence, raised
local raised, floor, lasts, px, px_checked = highest and math.max(highest, top)
a = a + 2
for i = 1, votes do
  if #ARGV[a + 1] < 33 then
    a = a + 1
    px = ARGV[a]
    px_checked = highest and #px <= 9 and px - most <= 0
  end
  local text, hint = ARGV[a + 1], ARGV[a + 2]
  a = a + 2
  local K, F, asked, reply = KEYS[first_K + i], KEYS[first_F + i], tonumber(hint), no
  if px_checked and asked <= top and now_us - asked <= HINT_MAX_US
    and (awaited == 0 or try('EXISTS', KEYS[k + 2 * i - 1], KEYS[k + 2 * i]) == 0) then
    local fence, kept = asked, KEEP_HINT_MS
    if asked <= highest then
      -- Another client's votes came first. One command for all: most votes of the call are behind then.
      floor = floor or tonumber(try('GET', L) or 0)
      lasts = lasts or try('MGET', unpack(KEYS, first_F + 1, first_F + votes))
      local last = not lasts.err and tonumber(lasts[i] or 0)
      fence = floor and last and math.max(asked, floor + 1, last + 1) or 9007199254740992
    end
    if fence > asked then
      -- As of a client whose clock is ahead, or of the floor of a quorum that was admitted minutes ago.
      text = text:sub(1, 33) .. ('%.0f'):format(fence) .. text:sub(34 + #hint)
      hint, kept = ('%.0f'):format(fence), ('%.0f'):format(KEEP_MS + math.max(0, fence - now_us) / 1000)
    end
    if fence < 9007199254740992 and (fence <= raised or not try('SET', H, hint).err) then
      if fence > raised then raised = fence end
      -- NX, because it may be held, also by another vote of this call.
      local set = try('SET', K, text, 'PX', px, 'NX')
      if set and set.ok then
        if try('SET', F, hint, 'PX', kept).err then
          try('DEL', K)
        elseif fence == asked then
          reply, done = 1, done + 1
        else
          reply = hint
        end
      end
    end
  end
  replies[count + i] = reply
end
return done == count + votes and 1 or replies
