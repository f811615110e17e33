-- Removes the rows of one run from a schema leasehold that others use too, and counts them. RUN is its prefix.
WITH
    pool AS (DELETE FROM leasehold.pools WHERE strpos(name, 'RUN') > 0 RETURNING pool),
    deadline AS (DELETE FROM leasehold.deadlines USING pool WHERE deadlines.pool = pool.pool RETURNING 1),
    dead AS (DELETE FROM leasehold.dead USING pool WHERE dead.pool = pool.pool RETURNING 1),
    waiter AS (DELETE FROM leasehold.waiters WHERE strpos(name, 'RUN') > 0 RETURNING 1),
    holder AS (DELETE FROM leasehold.holders WHERE strpos(name, 'RUN') > 0 RETURNING 1),
    lock AS (DELETE FROM leasehold.locks WHERE strpos(name, 'RUN') > 0 RETURNING 1),
    watcher AS (DELETE FROM leasehold.watchers WHERE strpos(key, 'RUN') > 0 RETURNING 1),
    record AS (DELETE FROM leasehold.records WHERE strpos(key, 'RUN') > 0 RETURNING 1)
SELECT (SELECT count(*) FROM pool) + (SELECT count(*) FROM deadline) + (SELECT count(*) FROM dead)
     + (SELECT count(*) FROM waiter) + (SELECT count(*) FROM holder) + (SELECT count(*) FROM lock)
     + (SELECT count(*) FROM watcher) + (SELECT count(*) FROM record);
