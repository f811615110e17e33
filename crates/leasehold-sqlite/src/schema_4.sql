-- What layout 4 adds to layout 3: latches and barriers. Who waits for one is in `watcher`, under its name behind a control
-- character, which no key of a record has.
--
-- A latch and its counts outlive a restart of the host. The leases of its participants end with their boot: whoever had one
-- has broken it.

CREATE TABLE latch (
    name       TEXT    NOT NULL PRIMARY KEY,
    kind       TEXT    NOT NULL,  -- latch or barrier
    count      INTEGER NOT NULL,  -- how many parties it has
    generation INTEGER NOT NULL,
    phase      TEXT    NOT NULL,  -- armed, open or broken
    counted    INTEGER NOT NULL,  -- how many have counted down in this generation
    joined     INTEGER NOT NULL,  -- how many rows it has in `party`
    previous   INTEGER NOT NULL,  -- the generation before; 0 if it is not known
    floor      INTEGER NOT NULL,  -- nothing is known of this generation and those before it
    broken     TEXT    NOT NULL,  -- the generations above it that broke, last first, with spaces between
    broken_by  TEXT,              -- holder data of the one that broke the last of them
    sweep_us   INTEGER NOT NULL   -- by the wall clock: nobody asks for the row any more
) STRICT, WITHOUT ROWID;

CREATE INDEX latch_by_sweep ON latch (sweep_us);

-- One row per participant.
CREATE TABLE party (
    latch   TEXT    NOT NULL,
    owner   TEXT    NOT NULL,
    boot    TEXT    NOT NULL,
    ends    INTEGER,           -- end of its lease by the boot clock; NULL once it needs none
    arrived INTEGER NOT NULL,  -- the last generation in which it counted down; 0 if there is none
    place   INTEGER NOT NULL,  -- how many were counted before it there
    PRIMARY KEY (latch, owner)
) STRICT, WITHOUT ROWID;

-- Finds the first lease that ends.
CREATE INDEX party_by_end ON party (latch, boot, ends) WHERE ends IS NOT NULL;
