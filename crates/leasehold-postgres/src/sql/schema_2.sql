-- Layout 2: latches and barriers, and names that can be forgotten.

-- One row: no name begins below this fence. Those that were forgotten had no higher one.
CREATE TABLE leasehold.fence_floor (fence bigint NOT NULL);
INSERT INTO leasehold.fence_floor VALUES (0);

-- One row per latch, until two days after its last use. One of generation 0 is not armed.
CREATE TABLE leasehold.latches (
    name       text COLLATE "C" PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 512),
    kind       text     NOT NULL DEFAULT 'latch',  -- or barrier
    parties    int      NOT NULL DEFAULT 0,        -- how many it has
    generation bigint   NOT NULL DEFAULT 0,        -- the present one
    phase      text     NOT NULL DEFAULT 'armed',  -- or open or broken
    counted    int      NOT NULL DEFAULT 0,        -- how many have counted down in it
    joined     int      NOT NULL DEFAULT 0,        -- how many take part in it: rows in `parties`
    previous   bigint   NOT NULL DEFAULT 0,        -- the generation before
    floor      bigint   NOT NULL DEFAULT 0,        -- nothing is known about this generation and those before it
    broken     bigint[] NOT NULL DEFAULT '{}',     -- those above the floor that broke, the last one first
    broken_by  text,                               -- who broke the last of them
    sweep_day  int      NOT NULL DEFAULT 0         -- nobody asks for the row any more, in days since 1970
) WITH (fillfactor = 50);

-- In days, so that most changes leave it as it is.
CREATE INDEX latches_by_sweep ON leasehold.latches (sweep_day);

-- One row per participant.
CREATE TABLE leasehold.parties (
    name    text COLLATE "C" NOT NULL,
    id      uuid   NOT NULL,
    holder  text   NOT NULL,
    ends    bigint,                     -- end of its lease; null once it needs none
    arrived bigint NOT NULL DEFAULT 0,  -- the generation in which it counted down last
    place   int    NOT NULL DEFAULT 0,  -- how many were before it there
    PRIMARY KEY (name, id)
) WITH (fillfactor = 50);

-- The lease that ends first is found without reading all, at the price of an index on what renewals change.
CREATE INDEX parties_by_end ON leasehold.parties (name, ends) WHERE ends IS NOT NULL;

-- What a request about a latch is answered.
CREATE TYPE leasehold.latch_answer AS (
    said       text,    -- joined, full, counted, left, rearmed, other generation, stranger, armed, open or broken
    generation bigint,  -- the present one; 0 if there is no latch
    first_us   bigint,  -- until the first lease of a participant ends; null if none does
    missing    int,     -- of counted and armed: how many have not counted down
    place      int,     -- of counted: how many were before it
    again      boolean, -- of counted: whether it was before
    who        text     -- of broken: the holder text of the participant that broke it
);
