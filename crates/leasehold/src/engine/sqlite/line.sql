-- The line before a place: how many live waiters, and for how long a free lock waits for all of them.
-- ?1 name · ?2 boot · ?3 now · ?4 place
SELECT count(*), coalesce(sum(turn), 0)
FROM waiter INDEXED BY waiter_in_order
WHERE name = ?1 AND place < ?4 AND boot = ?2 AND live_until > ?3
