-- Writes who holds a name and until when. The caller has read and decided in the same transaction.
-- ?1 name · ?2 last fence · ?3 owner; NULL: given back, or held by members · ?4 boot · ?5 closed until, or when it was given
-- back · ?6 free since · ?7 permits · ?8 permits that the first user named
INSERT INTO lock (name, fence, owner, boot, closed_until, free_since, permits, permits_first)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (name) DO UPDATE
SET fence = excluded.fence, owner = excluded.owner, boot = excluded.boot, closed_until = excluded.closed_until,
    free_since = excluded.free_since, permits = excluded.permits, permits_first = excluded.permits_first
