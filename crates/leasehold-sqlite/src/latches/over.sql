-- A few latches that nobody has used for long. One with a lease that lasts is in use, whatever the wall clock says.
-- ?1 wall clock · ?2 boot · ?3 now
SELECT name
FROM latch INDEXED BY latch_by_sweep
WHERE sweep_us <= ?1
  AND NOT EXISTS (SELECT 1 FROM party AS p WHERE p.latch = latch.name AND p.boot = ?2 AND p.ends > ?3)
LIMIT 4
