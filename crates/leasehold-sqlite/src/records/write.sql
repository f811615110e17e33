-- Writes what is under a key. The caller has decided so in the same transaction.
-- ?1 key · ?2 last fence · ?3 text · ?4 boot · ?5 ends · ?6 ends by the wall clock · ?7 when to sweep it
INSERT INTO record (key, fence, text, boot, ends, ends_us, sweep_us)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (key) DO UPDATE
SET fence = excluded.fence, text = excluded.text, boot = excluded.boot, ends = excluded.ends,
    ends_us = excluded.ends_us, sweep_us = excluded.sweep_us
