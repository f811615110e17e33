-- Removes a few rows that have nothing any more and whose fence nobody asks for. Whoever adds a row runs this, so there
-- are never many. Rows that the wall clock calls over too early are looked at and left alone.
-- ?1 wall clock · ?2 boot · ?3 now · ?4 most rows to look at
DELETE FROM record
WHERE place IN (
    SELECT place
    FROM (
        SELECT place, text IS NULL AS is_free, boot, ends, ends_us
        FROM record INDEXED BY record_by_sweep
        WHERE sweep_us <= ?1
        ORDER BY sweep_us
        LIMIT ?4
    )
    WHERE is_free
       OR (boot = ?2 AND ends <= ?3)
       OR (boot <> ?2 AND (ends_us IS NULL OR ends_us <= ?1))
)
