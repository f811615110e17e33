-- What layout 2 adds to layout 1: records with those who wait for them, and deadlines.
--
-- A record that is running ends with its boot, as a lock does. A mark, and what was settled, outlive a restart of the
-- host: within the boot they were written in, the boot clock counts, which nobody can set; after it the wall clock.

-- One row per key that has something, or had within the last day: a fence must go on growing.
CREATE TABLE record (
    place    INTEGER NOT NULL PRIMARY KEY,
    key      TEXT    NOT NULL UNIQUE,
    fence    INTEGER NOT NULL,  -- of the last execution that began; 0 if none did
    text     BLOB,              -- as every store has it; NULL once it was taken away
    boot     TEXT    NOT NULL,
    ends     INTEGER NOT NULL,  -- by the boot clock, in nanoseconds
    ends_us  INTEGER,           -- by the wall clock, in microseconds; NULL: at the latest with its boot
    sweep_us INTEGER NOT NULL   -- by the wall clock: nobody asks for the row any more
) STRICT;

CREATE INDEX record_by_sweep ON record (sweep_us);

-- Who wants to be told when an execution ends.
CREATE TABLE watcher (
    key        TEXT    NOT NULL,
    owner_id   TEXT    NOT NULL,
    boot       TEXT    NOT NULL,
    live_until INTEGER NOT NULL,  -- it asks again before
    wake       TEXT    NOT NULL,  -- the engine that a hint for it goes to
    PRIMARY KEY (key, owner_id)
) STRICT, WITHOUT ROWID;

-- Finds the rows that nobody will ask for again.
CREATE INDEX watcher_by_end ON watcher (boot, live_until);

CREATE TABLE pool (
    place     INTEGER NOT NULL PRIMARY KEY,
    name      TEXT    NOT NULL UNIQUE,
    buckets   INTEGER NOT NULL,
    placement TEXT    NOT NULL,  -- spread or together
    receipt   INTEGER NOT NULL   -- the last one that was given
) STRICT;

CREATE TABLE deadline (
    place        INTEGER NOT NULL PRIMARY KEY,
    pool         INTEGER NOT NULL,
    id           TEXT    NOT NULL,
    bucket       INTEGER NOT NULL,
    due          INTEGER NOT NULL,  -- by the wall clock, in milliseconds; while claimed: when it is visible again
    attempts     INTEGER NOT NULL,
    receipt      INTEGER,           -- of the last claim
    boot         TEXT,              -- in which it was claimed
    hidden_until INTEGER,           -- by that boot's clock: a step of the wall clock shows nothing too early
    context      BLOB,
    UNIQUE (pool, id)
) STRICT;

-- A claim reads from here, so it costs the same however many wait for their time.
CREATE INDEX deadline_by_due ON deadline (pool, bucket, due);

-- Counts those that were claimed.
CREATE INDEX deadline_tried ON deadline (pool) WHERE attempts > 0;

CREATE TABLE dead (
    place     INTEGER NOT NULL PRIMARY KEY,
    pool      INTEGER NOT NULL,
    id        TEXT    NOT NULL,
    attempts  INTEGER NOT NULL,
    buried_ms INTEGER NOT NULL,  -- by the wall clock
    why       TEXT    NOT NULL,
    context   BLOB,
    UNIQUE (pool, id)
) STRICT;
