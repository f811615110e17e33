-- Stores how a pool is laid out, if it is new.
-- KEYS leasehold:deadlines:{POOL}
-- ARGV "1 BUCKETS PLACEMENT"; 1 is the layout of the keys
-- the text that is stored
call('SET', KEYS[1], ARGV[1], 'NX')
return call('GET', KEYS[1])
