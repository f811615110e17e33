-- Keys in order, with what is under them.
-- ?1 least key · ?2 most rows
SELECT key, fence, text, boot, ends, ends_us
FROM record
WHERE key >= ?1
ORDER BY key
LIMIT ?2
