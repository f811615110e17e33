-- Layout 1 of a lease file. PRAGMA user_version holds the layout, PRAGMA application_id says whose file it is.
--
-- Times are nanoseconds of the host's boot clock. They mean nothing after a reboot, so each row carries the boot
-- it was written in, and a row of another boot counts as expired: its process is gone.

-- One row per name that is held, or was within the last day: a fence must go on growing while nobody holds it.
CREATE TABLE lock (
    name         TEXT    NOT NULL PRIMARY KEY,
    fence        INTEGER NOT NULL,  -- of the last grant
    owner        TEXT,              -- the owner value of the last grant; NULL once it was given back
    boot         TEXT    NOT NULL,
    closed_until INTEGER NOT NULL   -- end of the lease and its lock-delay; after a release: when that was
) STRICT, WITHOUT ROWID;

-- Finds the rows that have outlived their day.
CREATE INDEX lock_by_fence ON lock (fence);

-- One row per waiting attempt, in order of arrival. Whenever a name has a row here it has one in `lock` too.
CREATE TABLE waiter (
    place      INTEGER NOT NULL PRIMARY KEY,  -- one more than the highest at its arrival
    name       TEXT    NOT NULL,
    owner      TEXT    NOT NULL,
    boot       TEXT    NOT NULL,
    arrived    INTEGER NOT NULL,
    give_up    INTEGER NOT NULL,  -- its time limit
    live_until INTEGER NOT NULL,  -- passed over from then on, unless it is seen again
    turn       INTEGER NOT NULL,  -- how long a free lock waits for it; 0 once it let its turn pass
    wake       TEXT    NOT NULL   -- the engine that a hint for it goes to
) STRICT;

CREATE UNIQUE INDEX waiter_by_owner ON waiter (name, owner);
CREATE INDEX waiter_in_order ON waiter (name);  -- and, as every index, by place within it

-- Finds the rows that nobody will ask for again.
CREATE INDEX waiter_by_end ON waiter (boot, live_until);
