-- Names in order, in use or not.
-- ?1 least name · ?2 most rows
SELECT name
FROM lock
WHERE name >= ?1
ORDER BY name
LIMIT ?2
