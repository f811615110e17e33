-- Removes a few watchers that are gone, of any key. Whoever adds a row runs this, so there are never many.
-- ?1 boot · ?2 now
DELETE FROM watcher
WHERE (key, owner_id) IN (
    SELECT key, owner_id
    FROM watcher
    WHERE boot < ?1 OR boot > ?1 OR (boot = ?1 AND live_until <= ?2)
    LIMIT 4
)
