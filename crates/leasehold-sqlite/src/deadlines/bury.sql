-- Copies a claimed deadline to the dead; the caller removes it. No row changed: the receipt is void.
-- ?1 pool · ?2 id · ?3 receipt · ?4 wall clock · ?5 why
INSERT INTO dead (pool, id, attempts, buried_ms, why, context)
SELECT pool, id, attempts, ?4, ?5, context
FROM deadline
WHERE pool = ?1 AND id = ?2 AND receipt = ?3
