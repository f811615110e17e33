-- Who a node is, what it remembers, and its clock.
-- KEYS Q the node's record · H highest fence   ARGV none
-- {record or false, highest fence, data set, seconds, microseconds}
local call = redis.call
call('PERSIST', KEYS[1]) -- a write, so that a replica refuses instead of answering from old data
local data = call('INFO', 'replication'):match('master_replid:(%x+)')
local time = call('TIME')
return { call('GET', KEYS[1]), call('GET', KEYS[2]) or '0', data or '', time[1], time[2] }
