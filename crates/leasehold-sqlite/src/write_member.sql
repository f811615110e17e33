-- Writes one of several holders.
-- ?1 name · ?2 owner · ?3 boot · ?4 fence · ?5 mode · ?6 closed until
INSERT INTO member (name, owner, boot, fence, mode, closed_until)
VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (name, owner) DO UPDATE
SET boot = excluded.boot, fence = excluded.fence, mode = excluded.mode, closed_until = excluded.closed_until
