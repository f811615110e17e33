-- Fragment: under which record a node votes. Its text has the words of `Record`.

-- What the expected record says: its data set, and the longest px that the node votes for. Nil if the node has another
-- record.
local function read_record(Q, expected)
  if call('GET', Q) ~= expected then return nil end
  return expected:match('^1 %S+ %d+ %d+ %d+ %x+%-(%x+) (%d+) votes$')
end

-- Whether the data set is still that one. A connection outlives a change of roles, after which the record may have come
-- back from a replica without the votes that were given since.
local function is_data_set(data)
  return call('INFO', 'replication'):match('master_replid:(%x+)') == data
end

-- Nothing may be held for longer than a node that forgot it abstains.
local function check_longest(px, most)
  if tonumber(px) > tonumber(most) then
    error({ err = 'TTL a lease of ' .. px .. ' ms; this quorum allows ' .. most .. ' ms, lock-delay included' })
  end
end
