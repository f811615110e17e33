-- Live waiters in order.
-- ?1 name · ?2 boot · ?3 now · ?4 most rows
SELECT owner, arrived, turn, wake
FROM waiter INDEXED BY waiter_in_order
WHERE name = ?1 AND boot = ?2 AND live_until > ?3
ORDER BY place
LIMIT ?4
