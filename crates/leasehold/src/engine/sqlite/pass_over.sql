-- The lock went to somebody behind these: they had their turn. Their next claim gives them a new one.
-- ?1 name · ?2 place of the one who got it
UPDATE waiter
SET turn = 0
WHERE name = ?1 AND place < ?2
