-- Names in order, in use or not.
-- ?1 prefix · ?2 last name of the page before · ?3 most rows
SELECT name
FROM lock
WHERE name >= ?1 AND name > ?2
ORDER BY name
LIMIT ?3
