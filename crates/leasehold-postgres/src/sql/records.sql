-- Records and marks. The row of a key is locked while something is decided about it.

-- The day from which on nobody asks for a row. A fence is asked for within a day after its record.
CREATE OR REPLACE FUNCTION leasehold.sweep_day(ends bigint, fence bigint) RETURNS int
LANGUAGE sql IMMUTABLE AS $$ SELECT (ends / 86400000000 + CASE WHEN fence > 0 THEN 2 ELSE 1 END)::int $$;

-- The row of a key, locked. One that is made also removes a few that nobody asks for.
CREATE OR REPLACE FUNCTION leasehold.record_row(record_key text) RETURNS leasehold.records
LANGUAGE plpgsql AS $$
DECLARE
    r leasehold.records;
BEGIN
    LOOP
        SELECT * INTO r FROM leasehold.records AS t WHERE t.key = record_key FOR UPDATE;
        EXIT WHEN FOUND;
        DELETE FROM leasehold.records WHERE key IN (
            SELECT t.key FROM leasehold.records AS t WHERE t.sweep_day < leasehold.now_us() / 86400000000
            ORDER BY t.sweep_day LIMIT 4 FOR UPDATE SKIP LOCKED
        );
        INSERT INTO leasehold.records (key) VALUES (record_key) ON CONFLICT DO NOTHING;
    END LOOP;
    RETURN r;
END $$;

-- Notes what is under a key from now on, and tells those who wait for it.
CREATE OR REPLACE FUNCTION leasehold.write_record(r leasehold.records) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE leasehold.records AS t
    SET fence = r.fence, state = r.state, fingerprint = r.fingerprint, id = r.id, holder = r.holder, body = r.body,
        ends = r.ends, sweep_day = leasehold.sweep_day(r.ends, r.fence)
    WHERE t.key = r.key;
END $$;

-- Notes who wants to be told of a key whose row is locked. Of more than 10000, the others only poll.
CREATE OR REPLACE FUNCTION leasehold.watch(its_key text, owner uuid, own_channel text, asks_again_by bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE leasehold.watchers AS w SET channel = own_channel, until = asks_again_by WHERE w.key = its_key AND w.id = owner;
    IF NOT FOUND THEN
        IF (SELECT count(*) FROM leasehold.watchers AS w WHERE w.key = its_key) >= 10000 THEN
            -- Those who went away.
            DELETE FROM leasehold.watchers AS w WHERE w.key = its_key AND w.until <= leasehold.now_us();
            IF NOT FOUND THEN
                RETURN;
            END IF;
        END IF;
        INSERT INTO leasehold.watchers VALUES (its_key, owner, own_channel, asks_again_by);
    END IF;
END $$;

CREATE OR REPLACE FUNCTION leasehold.tell_watchers(record_key text) RETURNS void
LANGUAGE sql AS $$
    WITH gone AS (
        DELETE FROM leasehold.watchers WHERE key = record_key RETURNING id, channel, until
    ), told AS (
        SELECT channel, jsonb_agg(id) AS ids FROM gone WHERE until > leasehold.now_us() GROUP BY channel
    )
    SELECT leasehold.notify(jsonb_object_agg(channel, ids)) FROM told HAVING count(*) > 0
$$;

-- Begins a record, or says how it stands. The same owner again gets the same fence and a fresh lease.
--
-- record_key   which record
-- owner        the secret of this attempt
-- lease_ms     how long it runs unless renewed
-- its_print    what was asked for; null compares nothing
-- its_holder   what people may see: "MS PID HOST LABEL"
-- channel      where a hint goes when somebody else's ends; null for none
-- returns      outcome: yours, running, completed, failed, quarantined, mark or mismatch; fence; expires_us and holder of
--              one that is running; body of one that ended
CREATE OR REPLACE FUNCTION leasehold.begin_record(
    record_key text, owner uuid, lease_ms bigint DEFAULT 30000, its_print bytea DEFAULT NULL,
    its_holder text DEFAULT NULL, channel text DEFAULT NULL, patience_ms bigint DEFAULT NULL,
    OUT outcome text, OUT fence bigint, OUT expires_us bigint, OUT holder text, OUT body bytea)
LANGUAGE plpgsql AS $$
DECLARE
    r  leasehold.records;
    at bigint;
BEGIN
    PERFORM leasehold.wait_at_most(patience_ms);
    r := leasehold.record_row(record_key);
    at := leasehold.now_us();
    IF EXISTS (SELECT FROM leasehold.ended AS e WHERE e.id = owner) THEN
        RAISE 'this attempt has ended' USING ERRCODE = 'LH006';
    END IF;
    IF r.state IS NULL OR r.ends <= at THEN
        r.fence := leasehold.next_fence(r.fence, at);
        r.state := 'running';
        r.fingerprint := its_print;
        r.id := owner;
        r.holder := coalesce(its_holder, leasehold.this_session());
        r.body := NULL;
        r.ends := at + lease_ms * 1000;
        PERFORM leasehold.write_record(r);
        outcome := 'yours';
    ELSIF r.state = 'mark' THEN
        outcome := 'mark';
    ELSIF r.fingerprint <> its_print THEN
        outcome := 'mismatch';
    ELSIF r.state <> 'running' THEN
        outcome := r.state;
        body := r.body;
    ELSIF r.id = owner AND r.holder = coalesce(its_holder, r.holder) THEN
        r.ends := at + lease_ms * 1000;
        PERFORM leasehold.write_record(r);
        outcome := 'yours';
    ELSE
        outcome := 'running';
        holder := r.holder;
        expires_us := r.ends - at;
        IF channel IS NOT NULL THEN
            PERFORM leasehold.watch(record_key, owner, channel, r.ends + 10000000);
        END IF;
    END IF;
    fence := r.fence;
END $$;

-- Ends an execution and keeps its outcome, also after its lease ran out if nobody has begun since.
--
-- record_key  which record
-- owner       who ran it
-- its_fence   under which fence
-- its_end     completed, failed or quarantined; null leaves nothing, and the next one may try
-- its_print   of the request
-- its_body    the result
-- keep_ms     how long it is kept
-- its_holder  what people see of the owner; null compares only the owner
-- may_arrive  a request to begin of this attempt may still arrive
-- returns     stored, or false and the fence of whoever has begun since
CREATE OR REPLACE FUNCTION leasehold.settle_record(
    record_key text, owner uuid, its_fence bigint, its_end text, its_print bytea, its_body bytea, keep_ms bigint,
    its_holder text DEFAULT NULL, may_arrive boolean DEFAULT false, patience_ms bigint DEFAULT NULL,
    OUT stored boolean, OUT later bigint)
LANGUAGE plpgsql AS $$
DECLARE
    r    leasehold.records;
    at   bigint;
    lives boolean;
BEGIN
    PERFORM leasehold.wait_at_most(patience_ms);
    r := leasehold.record_row(record_key);
    at := leasehold.now_us();
    IF may_arrive THEN
        PERFORM leasehold.end_attempt(owner);
        -- Also seen by a caller that began before.
        UPDATE leasehold.records AS t SET fence = r.fence WHERE t.key = record_key;
    END IF;
    lives := coalesce(r.state IS NOT NULL AND r.ends > at, false);
    stored := true;
    IF NOT lives AND r.fence > its_fence THEN
        stored := its_end IS NULL;
        later := CASE WHEN NOT stored THEN r.fence END;
        RETURN;
    ELSIF lives AND r.state = 'mark' THEN
        stored := false;
        RETURN;
    ELSIF lives AND (r.state <> 'running' OR r.id <> owner OR r.holder <> its_holder) THEN
        -- No two executions of a key have one fence: a settlement that was sent again.
        stored := r.fence = its_fence;
        later := CASE WHEN NOT stored THEN r.fence END;
        RETURN;
    END IF;
    r.state := its_end;
    r.id := NULL;
    r.holder := NULL;
    r.fingerprint := CASE WHEN its_end IS NOT NULL THEN its_print END;
    r.body := CASE WHEN its_end IS NOT NULL THEN its_body END;
    IF its_end IS NULL THEN
        r.ends := at;
    ELSE
        r.fence := its_fence;
        r.ends := at + least(keep_ms, 3153600000000) * 1000;
    END IF;
    PERFORM leasehold.write_record(r);
    PERFORM leasehold.tell_watchers(record_key);
END $$;

-- Does something with marks; anything that is no mark is left alone.
--
-- keys     which
-- op       set, add (where there is nothing), test or clear
-- ttl_ms   how long those that are set last
-- returns  whether it was done, or is there, for each in order
CREATE OR REPLACE FUNCTION leasehold.on_marks(keys text[], op text, ttl_ms bigint DEFAULT 0, patience_ms bigint DEFAULT NULL)
RETURNS boolean[]
LANGUAGE plpgsql AS $$
DECLARE
    answers boolean[] := array_fill(false, ARRAY[cardinality(keys)]);
    r       leasehold.records;
    at      bigint;
    k       record;
BEGIN
    PERFORM leasehold.wait_at_most(patience_ms);
    -- In the order of keys: two such calls never wait for each other.
    FOR k IN SELECT * FROM unnest(keys) WITH ORDINALITY AS u (key, n) ORDER BY u.key COLLATE "C", u.n LOOP
        IF op IN ('set', 'add') THEN
            r := leasehold.record_row(k.key);
        ELSE
            SELECT * INTO r FROM leasehold.records AS t WHERE t.key = k.key;
        END IF;
        at := leasehold.now_us();
        IF r.ends <= at THEN
            r.state := NULL;
        END IF;
        IF op = 'test' THEN
            answers[k.n] := r.state IS NOT NULL;
        ELSIF op = 'clear' AND r.state = 'mark' THEN
            UPDATE leasehold.records AS t SET state = NULL, ends = at WHERE t.key = k.key AND t.state = 'mark' AND t.ends > at;
            answers[k.n] := FOUND;
        ELSIF op IN ('set', 'add') AND (r.state IS NULL OR (r.state = 'mark' AND op = 'set')) THEN
            r.state := 'mark';
            r.fingerprint := NULL;
            r.id := NULL;
            r.holder := NULL;
            r.body := NULL;
            r.ends := at + ttl_ms * 1000;
            PERFORM leasehold.write_record(r);
            answers[k.n] := true;
        END IF;
    END LOOP;
    RETURN answers;
END $$;

-- Removes whatever is under a key, for operators.
--
-- returns  whether there was something
CREATE OR REPLACE FUNCTION leasehold.remove_record(record_key text, patience_ms bigint DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    r  leasehold.records;
    at bigint;
BEGIN
    PERFORM leasehold.wait_at_most(patience_ms);
    SELECT * INTO r FROM leasehold.records AS t WHERE t.key = record_key FOR UPDATE;
    at := leasehold.now_us();
    IF NOT FOUND OR r.state IS NULL OR r.ends <= at THEN
        RETURN false;
    END IF;
    r.state := NULL;
    r.fingerprint := NULL;
    r.id := NULL;
    r.holder := NULL;
    r.body := NULL;
    r.ends := at;
    PERFORM leasehold.write_record(r);
    PERFORM leasehold.tell_watchers(record_key);
    RETURN true;
END $$;

-- Keys in order that begin with a prefix, with what is under them; for programs that may settle it, also the owner of one that is running.
--
-- after  where the page before ended; empty begins
-- most   how many
CREATE OR REPLACE FUNCTION leasehold.show_records(prefix text, after text, most int)
RETURNS TABLE (key text, state text, fence bigint, fingerprint bytea, owner text, body bytea, expires_us bigint)
LANGUAGE sql STABLE AS $$
    SELECT t.key, t.state, t.fence, t.fingerprint, replace(t.id::text, '-', '') || ' ' || t.holder, t.body, t.ends - leasehold.now_us()
    FROM leasehold.records AS t
    WHERE t.state IS NOT NULL AND t.ends > leasehold.now_us()
      AND t.key > after COLLATE "C" AND t.key >= prefix COLLATE "C" AND starts_with(t.key, prefix)
    ORDER BY t.key
    LIMIT most
$$;

-- What is under one key.
CREATE OR REPLACE FUNCTION leasehold.show_record(record_key text)
RETURNS TABLE (key text, state text, fence bigint, fingerprint bytea, owner text, body bytea, expires_us bigint)
LANGUAGE sql STABLE AS $$
    SELECT t.key, t.state, t.fence, t.fingerprint, replace(t.id::text, '-', '') || ' ' || t.holder, t.body, t.ends - leasehold.now_us()
    FROM leasehold.records AS t
    WHERE t.key = record_key AND t.state IS NOT NULL AND t.ends > leasehold.now_us()
$$;
