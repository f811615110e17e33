-- Some dead deadlines of a bucket. Reads only.
-- KEYS dead
-- ARGV cursor, how many about
-- {next cursor, {id, text, ..}}
return call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
