-- Removes a few waiters that are gone, of any name. Whoever adds a row runs this, so there are never many.
-- ?1 boot · ?2 now
DELETE FROM waiter
WHERE place IN (
    SELECT place
    FROM waiter
    WHERE boot < ?1 OR boot > ?1 OR (boot = ?1 AND live_until <= ?2)
    LIMIT 4
)
