-- Names in order, with their lease and whether somebody live waits.
-- ?1 least name · ?2 boot · ?3 now · ?4 most rows
SELECT name, fence, owner, boot, closed_until,
       EXISTS (
           SELECT 1
           FROM waiter AS w INDEXED BY waiter_in_order
           WHERE w.name = lock.name AND w.boot = ?2 AND w.live_until > ?3
       )
FROM lock
WHERE name >= ?1
ORDER BY name
LIMIT ?4
