-- The lease of a participant that ends first: one of another boot has ended.
-- ?1 latch · ?2 boot
SELECT owner, ends
FROM (
    SELECT owner, 0 AS ends
    FROM party
    WHERE latch = ?1 AND (boot < ?2 OR boot > ?2) AND ends IS NOT NULL
    LIMIT 1
)
UNION ALL
SELECT owner, ends
FROM (
    SELECT owner, ends
    FROM party
    WHERE latch = ?1 AND boot = ?2 AND ends IS NOT NULL
    ORDER BY ends
    LIMIT 1
)
