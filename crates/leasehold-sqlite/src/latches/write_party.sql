-- Writes a participant.
-- ?1 latch · ?2 owner · ?3 boot · ?4 end of its lease · ?5 generation in which it arrived · ?6 place there
INSERT INTO party (latch, owner, boot, ends, arrived, place)
VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (latch, owner) DO UPDATE
SET boot = excluded.boot, ends = excluded.ends, arrived = excluded.arrived, place = excluded.place
