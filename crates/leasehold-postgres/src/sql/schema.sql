-- Layout 1: everything of Leasehold lives in a schema of its own.
--
-- Times are microseconds since 1970 by the server's clock. An owner is 128 random bits, the secret of one attempt; what
-- people may see of it stands beside it as "MS PID HOST LABEL". `take` says how a lock is held or asked for: -1 alone, 0
-- shared, otherwise so many permits.
--
-- Whoever decides about a name has its row in `locks` locked. Every change of its holders, its queue or its tombstones
-- also updates that row, so that a caller in a stricter isolation level gets a serialization failure instead of an old
-- picture.

CREATE SCHEMA leasehold;

-- One row per name, never deleted in use: its fence must go on growing. No index on what changes, and room on every page,
-- so that updates stay on it (HOT).
CREATE TABLE leasehold.locks (
    name        text COLLATE "C" PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 512),
    fence       bigint  NOT NULL DEFAULT 0,      -- of the last grant
    id          uuid,                            -- owner of the exclusive lease; null once it was given back
    holder      text,
    ends        bigint  NOT NULL DEFAULT 0,      -- end of that lease and its lock-delay
    free_since  bigint  NOT NULL DEFAULT 0,      -- when something of it was given back last
    limit_now   int,                             -- how many permits there are, if it is a semaphore
    limit_first int,                             -- how many its first user named
    is_shared   boolean NOT NULL DEFAULT false,  -- there may be rows in `holders`
    is_awaited  boolean NOT NULL DEFAULT false   -- there may be rows in `waiters`
) WITH (fillfactor = 50);

-- One row per holder of a shared lock or of permits.
CREATE TABLE leasehold.holders (
    name   text COLLATE "C" NOT NULL,
    id     uuid   NOT NULL,
    fence  bigint NOT NULL,
    take   int    NOT NULL,
    out_of int    NOT NULL,  -- how many permits there were
    holder text   NOT NULL,
    ends   bigint NOT NULL,
    PRIMARY KEY (name, id)
) WITH (fillfactor = 50);

-- One row per waiting attempt, in order of arrival.
CREATE TABLE leasehold.waiters (
    name       text COLLATE "C" NOT NULL,
    place      bigint GENERATED ALWAYS AS IDENTITY,
    id         uuid   NOT NULL,
    take       int    NOT NULL,
    out_of     int    NOT NULL,
    holder     text   NOT NULL,
    arrived    bigint NOT NULL,
    gives_up   bigint NOT NULL,  -- its time limit
    live_until bigint NOT NULL,  -- passed over from then on, unless it claims again
    turn       bigint NOT NULL,  -- how long a free lock waits for it; 0 once it let its turn pass
    lasts      bigint NOT NULL,  -- its lease and its lock-delay
    channel    text,             -- where a hint for it goes, if it listens
    PRIMARY KEY (name, place),
    UNIQUE (name, id)
) WITH (fillfactor = 50);

-- Attempts that have ended while a claim of theirs may still arrive.
CREATE TABLE leasehold.ended (
    id    uuid   PRIMARY KEY,
    until bigint NOT NULL  -- nothing of it arrives later
);

CREATE INDEX ended_by_time ON leasehold.ended (until);

-- Which layout this is, which programs can work with it, and what was installed.
CREATE TABLE leasehold.schema_version (
    version    int         NOT NULL,
    works_from int         NOT NULL,  -- the oldest layout whose programs can work with it
    checksum   text        NOT NULL,
    installed  timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- What a claim is answered.
CREATE TYPE leasehold.answer AS (
    outcome    text,    -- granted, queued or busy
    fence      bigint,  -- of the grant; otherwise the last one of the name
    owner      uuid,    -- the secret that proves the attempt
    ahead      int,     -- how many wait before it
    holders    int,     -- how many hold the lock
    free_in_us bigint,  -- when it may be free
    held_by    text[]   -- the first of the holders: "FENCE LEFT_US TAKE OUT_OF MS PID HOST LABEL"
);

-- One row per key that has something, or had within the last day: a fence must go on growing.
CREATE TABLE leasehold.records (
    key         text COLLATE "C" PRIMARY KEY CHECK (octet_length(key) BETWEEN 1 AND 1024),
    fence       bigint NOT NULL DEFAULT 0,  -- of the last execution that began; 0 if none did
    state       text,                       -- mark, running, completed, failed or quarantined; null once it was taken away
    fingerprint bytea,                      -- of the request
    id          uuid,                       -- owner of an execution that is running
    holder      text,
    body        bytea,                      -- the result
    ends        bigint NOT NULL DEFAULT 0,
    sweep_day   int    NOT NULL DEFAULT 0   -- nobody asks for the row any more, in days since 1970
) WITH (fillfactor = 50);

-- In days, so that most renewals leave it as it is.
CREATE INDEX records_by_sweep ON leasehold.records (sweep_day);

-- Who wants to be told when an execution ends.
CREATE TABLE leasehold.watchers (
    key     text COLLATE "C" NOT NULL,
    id      uuid   NOT NULL,
    channel text   NOT NULL,
    until   bigint NOT NULL,  -- it asks again before
    PRIMARY KEY (key, id)
);

CREATE TABLE leasehold.pools (
    pool      int  GENERATED ALWAYS AS IDENTITY UNIQUE,
    name      text COLLATE "C" PRIMARY KEY,
    buckets   int  NOT NULL,
    placement text NOT NULL  -- spread or together; here it makes no difference
);

CREATE TABLE leasehold.deadlines (
    pool     int    NOT NULL,
    id       text   COLLATE "C" NOT NULL,
    bucket   int    NOT NULL,
    due      bigint NOT NULL,            -- in milliseconds since 1970; while claimed: when it is visible again
    attempts int    NOT NULL DEFAULT 0,
    receipt  bigint NOT NULL DEFAULT 0,  -- of the last claim; negative once it is void
    context  bytea,
    PRIMARY KEY (pool, id)
) WITH (fillfactor = 80);

-- A claim reads from here, so it costs the same however many wait for their time.
CREATE INDEX deadlines_by_due ON leasehold.deadlines (pool, bucket, due);

-- Counts those that were claimed.
CREATE INDEX deadlines_tried ON leasehold.deadlines (pool) WHERE attempts > 0;

CREATE TABLE leasehold.dead (
    pool      int    NOT NULL,
    id        text   COLLATE "C" NOT NULL,
    attempts  int    NOT NULL,
    buried_ms bigint NOT NULL,
    why       bytea  NOT NULL,  -- any text, also one with a zero in it
    context   bytea,
    PRIMARY KEY (pool, id)
);
