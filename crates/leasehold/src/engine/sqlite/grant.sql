-- Gives a free lock to an owner. The caller has found it free in the same transaction.
-- ?1 name · ?2 fence · ?3 owner · ?4 boot · ?5 closed until
INSERT INTO lock (name, fence, owner, boot, closed_until)
VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (name) DO UPDATE
SET fence = excluded.fence, owner = excluded.owner, boot = excluded.boot, closed_until = excluded.closed_until
