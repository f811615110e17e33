-- Writes a latch. The caller has decided so in the same transaction.
-- ?1 name · ?2 kind · ?3 count · ?4 generation · ?5 phase · ?6 counted · ?7 joined · ?8 previous · ?9 floor · ?10 broken ·
-- ?11 broken by · ?12 when to sweep it
INSERT OR REPLACE INTO latch
    (name, kind, count, generation, phase, counted, joined, previous, floor, broken, broken_by, sweep_us)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
