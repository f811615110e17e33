-- Removes a few holders whose leases have expired, of any name. Whoever adds a row runs this, so there are never many.
-- ?1 boot · ?2 now
DELETE FROM member
WHERE (name, owner) IN (
    SELECT name, owner
    FROM member
    WHERE boot < ?1 OR boot > ?1 OR (boot = ?1 AND closed_until <= ?2)
    LIMIT 4
)
