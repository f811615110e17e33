-- Extends a lease that has not ended. No row changed: it is gone, and stays gone.
-- ?1 name · ?2 owner · ?3 boot · ?4 now · ?5 closed until
UPDATE lock
SET closed_until = ?5
WHERE name = ?1 AND owner = ?2 AND boot = ?3 AND closed_until > ?4
