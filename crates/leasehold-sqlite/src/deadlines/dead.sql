-- The dead of a pool, by id.
-- ?1 pool · ?2 the last id of the page before · ?3 most rows
SELECT id, attempts, buried_ms, why, context
FROM dead
WHERE pool = ?1 AND id > ?2
ORDER BY id
LIMIT ?3
