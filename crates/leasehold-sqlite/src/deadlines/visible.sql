-- What may be claimed of a bucket, oldest first.
-- ?1 pool · ?2 bucket · ?3 wall clock · ?4 boot · ?5 now · ?6 most rows
SELECT place, id, due, attempts, context
FROM deadline INDEXED BY deadline_by_due
WHERE pool = ?1 AND bucket = ?2 AND due <= ?3
  AND (boot IS NULL OR boot <> ?4 OR hidden_until <= ?5)
ORDER BY due
LIMIT ?6
