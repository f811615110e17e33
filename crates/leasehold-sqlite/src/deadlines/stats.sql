-- How a pool stands: pending, claimed at least once, dead, due now, and the oldest of these.
-- ?1 pool · ?2 wall clock · ?3 boot · ?4 now
SELECT (SELECT count(*) FROM deadline INDEXED BY deadline_by_due WHERE pool = ?1),
       (SELECT count(*) FROM deadline INDEXED BY deadline_tried WHERE pool = ?1 AND attempts > 0),
       (SELECT count(*) FROM dead WHERE pool = ?1),
       count(*),
       min(due)
FROM deadline
WHERE pool = ?1 AND due <= ?2 AND (boot IS NULL OR boot <> ?3 OR hidden_until <= ?4)
