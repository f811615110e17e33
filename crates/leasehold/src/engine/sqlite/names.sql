-- Names in order, with their lease and whether somebody live waits.
-- ?1 least name · ?2 name before the first · ?3 boot · ?4 now · ?5 most rows
SELECT name, fence, owner, boot, closed_until,
       EXISTS (SELECT 1 FROM waiter AS w WHERE w.name = lock.name AND w.boot = ?3 AND w.live_until > ?4)
FROM lock
WHERE name >= ?1 AND name > ?2
ORDER BY name
LIMIT ?5
