-- What layout 3 adds to layout 2: locks that several hold at once.
--
-- While readers or holders of permits are there, the row in `lock` has no owner and is closed until the last of them ends:
-- a program that knows layout 2 only waits that long.

-- One row per holder of a shared lock or of permits.
CREATE TABLE member (
    name         TEXT    NOT NULL,
    owner        TEXT    NOT NULL,
    boot         TEXT    NOT NULL,
    fence        INTEGER NOT NULL,
    mode         TEXT    NOT NULL,
    closed_until INTEGER NOT NULL,  -- end of the lease and its lock-delay
    PRIMARY KEY (name, owner)
) STRICT, WITHOUT ROWID;

-- Finds the rows of leases that have expired.
CREATE INDEX member_by_end ON member (boot, closed_until);

ALTER TABLE waiter ADD COLUMN mode TEXT NOT NULL DEFAULT 'exclusive';
ALTER TABLE lock ADD COLUMN free_since INTEGER NOT NULL DEFAULT 0;  -- when something of it was given back last
ALTER TABLE lock ADD COLUMN permits INTEGER;                        -- how many there are, if it is a semaphore
ALTER TABLE lock ADD COLUMN permits_first INTEGER;                  -- how many its first user named
