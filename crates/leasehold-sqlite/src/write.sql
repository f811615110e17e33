-- Writes who holds a name and until when. The caller has read and decided in the same transaction.
-- ?1 name · ?2 last fence · ?3 owner; NULL: given back · ?4 boot · ?5 closed until, or when it was given back
INSERT INTO lock (name, fence, owner, boot, closed_until)
VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (name) DO UPDATE
SET fence = excluded.fence, owner = excluded.owner, boot = excluded.boot, closed_until = excluded.closed_until
