-- Waiters in order: those that are live, and the one that asks. Who comes after that one does not matter to it.
-- ?1 name · ?2 boot · ?3 now · ?4 owner that asks · ?5 most rows, -1 for all
SELECT owner, arrived, give_up, live_until, turn, wake, mode
FROM waiter INDEXED BY waiter_in_order
WHERE name = ?1 AND boot = ?2 AND (live_until > ?3 OR owner = ?4)
  AND place <= coalesce((SELECT place FROM waiter WHERE name = ?1 AND owner = ?4), 9223372036854775807)
ORDER BY place
LIMIT ?5
