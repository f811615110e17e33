-- Deadlines, in milliseconds by the server's clock.

CREATE OR REPLACE FUNCTION leasehold.now_ms() RETURNS bigint
LANGUAGE sql VOLATILE AS $$ SELECT leasehold.now_us() / 1000 $$;

-- The number and the layout of a pool; one that is new gets the layout that is given, or none if that is null.
CREATE OR REPLACE FUNCTION leasehold.pool_layout(
    pool_name text, new_buckets int, new_placement text, OUT pool int, OUT buckets int, OUT placement text)
LANGUAGE plpgsql AS $$
BEGIN
    LOOP
        SELECT p.pool, p.buckets, p.placement INTO pool, buckets, placement
        FROM leasehold.pools AS p WHERE p.name = pool_name;
        EXIT WHEN FOUND OR new_buckets IS NULL;
        INSERT INTO leasehold.pools (name, buckets, placement) VALUES (pool_name, new_buckets, new_placement)
        ON CONFLICT DO NOTHING;
    END LOOP;
END $$;

-- Sets deadlines. One of the same id, also a dead one, is replaced: a claim of it is void, its attempts begin anew.
--
-- ids, in_buckets, contexts  of each
-- after_ms, at_ms            when it is due: so long from now, or at that time
CREATE OR REPLACE FUNCTION leasehold.set_deadlines(
    pool_name text, new_buckets int, new_placement text,
    ids text[], in_buckets int[], after_ms bigint[], at_ms bigint[], contexts bytea[])
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    number int := (leasehold.pool_layout(pool_name, new_buckets, new_placement)).pool;
    d      record;
BEGIN
    -- In the order of ids: two such calls never wait for each other. The last one of an id counts.
    FOR d IN
        SELECT DISTINCT ON (u.id COLLATE "C") u.*
        FROM unnest(ids, in_buckets, after_ms, at_ms, contexts) WITH ORDINALITY AS u (id, bucket, after_ms, at_ms, context, n)
        ORDER BY u.id COLLATE "C", u.n DESC
    LOOP
        INSERT INTO leasehold.deadlines AS o (pool, id, bucket, due, context)
        VALUES (number, d.id, d.bucket, coalesce(leasehold.now_ms() + d.after_ms, d.at_ms), d.context)
        ON CONFLICT (pool, id) DO UPDATE
        SET bucket = excluded.bucket, due = excluded.due, attempts = 0, receipt = -abs(o.receipt), context = excluded.context;
        DELETE FROM leasehold.dead AS o WHERE o.pool = number AND o.id = d.id;
    END LOOP;
END $$;

-- Claims what is due, oldest first, and hides it for a while. What another one is claiming at the same time is skipped.
--
-- most           how many of each bucket at most
-- visibility_ms  how long they are hidden
-- returns        each with its receipt, which grows with every claim of an id; and whether more is due
CREATE OR REPLACE FUNCTION leasehold.claim_due(pool_name text, most int, visibility_ms bigint)
RETURNS TABLE (id text, receipt bigint, attempt int, overdue_ms bigint, context bytea, more boolean)
LANGUAGE plpgsql AS $$
DECLARE
    layout record := leasehold.pool_layout(pool_name, NULL, NULL);
    at     bigint := leasehold.now_ms();
BEGIN
    RETURN QUERY
    WITH visible AS MATERIALIZED (
        SELECT v.id, v.due, v.size, b.bucket
        FROM generate_series(0, layout.buckets - 1) AS b (bucket), LATERAL (
            SELECT d.id, d.due, coalesce(octet_length(d.context), 0) AS size FROM leasehold.deadlines AS d
            WHERE d.pool = layout.pool AND d.bucket = b.bucket AND d.due <= at
            ORDER BY d.due LIMIT most + 1
            FOR UPDATE SKIP LOCKED
        ) AS v
    ), counted AS (
        SELECT v.*, row_number() OVER (PARTITION BY v.bucket ORDER BY v.due) AS n,
               sum(v.size) OVER (ORDER BY v.due, v.id) - v.size AS bytes_before
        FROM visible AS v
    ), claimed AS (
        UPDATE leasehold.deadlines AS d
        SET due = at + visibility_ms, attempts = d.attempts + 1, receipt = greatest(abs(d.receipt) + 1, leasehold.now_us())
        FROM counted AS c
        -- Contexts of more than 16 MiB are left for the next claim.
        WHERE d.pool = layout.pool AND d.id = c.id AND c.n <= most AND c.bytes_before < 16777216
        RETURNING d.id, d.receipt, d.attempts, at - c.due AS overdue, d.context, c.bucket, c.due
    )
    SELECT c.id, c.receipt, c.attempts, greatest(c.overdue, 0), c.context,
           (SELECT count(*) FROM counted) > (SELECT count(*) FROM claimed)
    FROM claimed AS c ORDER BY c.bucket, c.due;
END $$;

-- Settles claimed deadlines, in order.
--
-- ids, receipts  of the claims
-- ends           done, postpone, give back or bury
-- after_ms       when one that is postponed is due again
-- whys           why one is buried
-- returns        for each whether its receipt was good
CREATE OR REPLACE FUNCTION leasehold.settle_deadlines(
    pool_name text, ids text[], receipts bigint[], ends text[], after_ms bigint[], whys bytea[])
RETURNS boolean[]
LANGUAGE plpgsql AS $$
DECLARE
    number int := (leasehold.pool_layout(pool_name, NULL, NULL)).pool;
    good   boolean[] := array_fill(false, ARRAY[cardinality(ids)]);
BEGIN
    FOR i IN 1 .. cardinality(ids) LOOP
        CASE ends[i]
            WHEN 'done' THEN
                DELETE FROM leasehold.deadlines AS d WHERE d.pool = number AND d.id = ids[i] AND d.receipt = receipts[i];
            WHEN 'postpone' THEN
                UPDATE leasehold.deadlines AS d SET due = leasehold.now_ms() + after_ms[i]
                WHERE d.pool = number AND d.id = ids[i] AND d.receipt = receipts[i];
            WHEN 'give back' THEN
                -- Its receipt is void, so that the same again changes nothing.
                UPDATE leasehold.deadlines AS d
                SET due = leasehold.now_ms(), attempts = d.attempts - 1, receipt = -d.receipt
                WHERE d.pool = number AND d.id = ids[i] AND d.receipt = receipts[i];
            WHEN 'bury' THEN
                WITH gone AS (
                    DELETE FROM leasehold.deadlines AS d WHERE d.pool = number AND d.id = ids[i] AND d.receipt = receipts[i]
                    RETURNING d.*
                )
                INSERT INTO leasehold.dead (pool, id, attempts, buried_ms, why, context)
                SELECT number, g.id, g.attempts, leasehold.now_ms(), whys[i], g.context FROM gone AS g;
        END CASE;
        good[i] := FOUND;
    END LOOP;
    RETURN good;
END $$;

-- Removes deadlines, claimed or not, alive or dead.
--
-- returns  for each whether there was one
CREATE OR REPLACE FUNCTION leasehold.cancel_deadlines(pool_name text, ids text[]) RETURNS boolean[]
LANGUAGE plpgsql AS $$
DECLARE
    number int := (leasehold.pool_layout(pool_name, NULL, NULL)).pool;
    was    boolean[] := array_fill(false, ARRAY[cardinality(ids)]);
    d      record;
BEGIN
    FOR d IN SELECT * FROM unnest(ids) WITH ORDINALITY AS u (id, n) ORDER BY u.id COLLATE "C", u.n LOOP
        DELETE FROM leasehold.deadlines AS o WHERE o.pool = number AND o.id = d.id;
        was[d.n] := FOUND;
        DELETE FROM leasehold.dead AS o WHERE o.pool = number AND o.id = d.id;
        was[d.n] := was[d.n] OR FOUND;
    END LOOP;
    RETURN was;
END $$;

-- What is due, oldest first, without claiming it.
CREATE OR REPLACE FUNCTION leasehold.peek_due(pool_name text, most int)
RETURNS TABLE (id text, attempts int, overdue_ms bigint)
LANGUAGE sql STABLE AS $$
    SELECT v.id, v.attempts, now_ms.at - v.due
    FROM (SELECT leasehold.now_ms() AS at) AS now_ms, leasehold.pools AS p, generate_series(0, p.buckets - 1) AS b (bucket), LATERAL (
        SELECT d.id, d.due, d.attempts FROM leasehold.deadlines AS d
        WHERE d.pool = p.pool AND d.bucket = b.bucket AND d.due <= now_ms.at
        ORDER BY d.due LIMIT most
    ) AS v
    WHERE p.name = pool_name
    ORDER BY v.due
    LIMIT most
$$;

-- Dead deadlines by id.
--
-- after  where the page before ended
CREATE OR REPLACE FUNCTION leasehold.dead_deadlines(pool_name text, after text, most int)
RETURNS TABLE (id text, attempts int, buried_ms bigint, why bytea, context bytea)
LANGUAGE sql STABLE AS $$
    SELECT d.id, d.attempts, d.buried_ms, d.why, d.context
    FROM leasehold.pools AS p JOIN leasehold.dead AS d USING (pool)
    WHERE p.name = pool_name AND d.id > after COLLATE "C"
    ORDER BY d.id
    LIMIT most
$$;

-- How a pool stands: pending, of these due now and claimed at least once, dead, and how long the oldest has been due.
CREATE OR REPLACE FUNCTION leasehold.pool_stats(
    pool_name text, OUT pending bigint, OUT tried bigint, OUT dead bigint, OUT due bigint, OUT overdue_ms bigint)
LANGUAGE sql STABLE AS $$
    WITH p AS (SELECT pool, leasehold.now_ms() AS at FROM leasehold.pools WHERE name = pool_name)
    SELECT (SELECT count(*) FROM leasehold.deadlines AS d, p WHERE d.pool = p.pool),
           (SELECT count(*) FROM leasehold.deadlines AS d, p WHERE d.pool = p.pool AND d.attempts > 0),
           (SELECT count(*) FROM leasehold.dead AS d, p WHERE d.pool = p.pool),
           count(*),
           coalesce(greatest(max(p.at - d.due), 0), 0)
    FROM leasehold.deadlines AS d, p
    WHERE d.pool = p.pool AND d.due <= p.at
$$;
