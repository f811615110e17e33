-- Stores how a pool is laid out, if it is new; or only reads it.
-- KEYS leasehold:deadlines:{POOL}
-- ARGV "1 BUCKETS PLACEMENT", or nothing to read; 1 is the layout of the keys
-- the text that is stored, or false
if ARGV[1] then call('SET', KEYS[1], ARGV[1], 'NX') end
return call('GET', KEYS[1])
