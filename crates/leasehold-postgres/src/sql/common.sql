-- What the functions of locks share. None of it is called by clients.

-- The time, also within a transaction: `now()` is frozen at its start.
CREATE OR REPLACE FUNCTION leasehold.now_us() RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
$$;

-- The fence after `last`: a counter alone repeats after a fail-over, time alone after a clock step.
CREATE OR REPLACE FUNCTION leasehold.next_fence(last bigint, at bigint) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF greatest(last + 1, at) >= 9007199254740992 THEN
        RAISE 'fence exhausted: fences end at 2^53' USING ERRCODE = 'LH007';
    END IF;
    RETURN greatest(last + 1, at);
END $$;

-- Bounds the waits for row locks that follow, in this transaction. null: as the session has it.
CREATE OR REPLACE FUNCTION leasehold.wait_at_most(patience_ms bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF patience_ms IS NOT NULL THEN
        PERFORM set_config('lock_timeout', greatest(patience_ms, 1)::text, true);
    END IF;
END $$;

-- `take` of a mode in words, and of its permits.
CREATE OR REPLACE FUNCTION leasehold.take_of(lock_mode text, permits int) RETURNS int
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    CASE lock_mode
        WHEN 'exclusive' THEN RETURN -1;
        WHEN 'shared' THEN RETURN 0;
        WHEN 'permits' THEN
            IF permits >= 1 THEN RETURN permits; END IF;
            RAISE 'invalid permits "%": expected 1 or more', permits USING ERRCODE = '22023';
        ELSE RAISE 'invalid mode "%": expected exclusive, shared or permits', lock_mode USING ERRCODE = '22023';
    END CASE;
END $$;

-- The row of a name, which is made if it is not there. It stays locked until the end of the transaction; checks of its
-- fence and renewals go on beside.
CREATE OR REPLACE FUNCTION leasehold.lock_row(lock_name text) RETURNS leasehold.locks
LANGUAGE plpgsql AS $$
DECLARE
    l leasehold.locks;
BEGIN
    LOOP
        SELECT * INTO l FROM leasehold.locks WHERE name = lock_name FOR NO KEY UPDATE;
        IF FOUND THEN
            RETURN l;
        END IF;
        INSERT INTO leasehold.locks (name) VALUES (lock_name) ON CONFLICT DO NOTHING RETURNING * INTO l;
        IF FOUND THEN
            -- Read once the row is there: if it was forgotten a moment ago, its fence is in it.
            SELECT f.fence INTO STRICT l.fence FROM leasehold.fence_floor AS f;
            RETURN l;
        END IF;
    END LOOP;
END $$;

-- Takes out what has expired of a name whose row is locked. A lease that an open transaction has checked stays: it is over
-- when that transaction is. Rows of holders are removed; what is to be written of `locks` is only returned.
CREATE OR REPLACE FUNCTION leasehold.without_expired(l leasehold.locks, at bigint, OUT kept leasehold.locks, OUT removed boolean)
LANGUAGE plpgsql AS $$
DECLARE
    last_end bigint;
BEGIN
    kept := l;
    -- Not later than now: the clock may have gone back since, and turns begin then.
    kept.free_since := least(l.free_since, at);
    removed := false;
    IF l.id IS NOT NULL AND l.ends <= at THEN
        PERFORM 1 FROM leasehold.locks WHERE name = l.name FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            kept.id := NULL;
            kept.holder := NULL;
            kept.free_since := greatest(kept.free_since, l.ends);
        END IF;
    END IF;
    IF l.is_shared THEN
        WITH gone AS (
            SELECT id FROM leasehold.holders WHERE name = l.name AND ends <= at FOR UPDATE SKIP LOCKED
        ), deleted AS (
            DELETE FROM leasehold.holders AS h USING gone WHERE h.name = l.name AND h.id = gone.id RETURNING h.ends
        )
        SELECT max(ends) INTO last_end FROM deleted;
        IF last_end IS NOT NULL THEN
            removed := true;
            kept.free_since := greatest(kept.free_since, last_end);
        END IF;
        kept.is_shared := EXISTS (SELECT FROM leasehold.holders WHERE name = l.name);
    END IF;
END $$;

-- Whether one more fits beside what is taken: `kind` is 0 for nothing, -1 for one alone, 1 for readers, 2 for permits.
CREATE OR REPLACE FUNCTION leasehold.fits(kind int, taken bigint, take int, out_of int) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN take < 0 THEN kind = 0
                WHEN take = 0 THEN kind IN (0, 1)
                ELSE kind IN (0, 2) AND taken + take <= out_of END
$$;

-- What is taken of a name.
CREATE OR REPLACE FUNCTION leasehold.taken(l leasehold.locks, OUT kind int, OUT taken bigint)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    kind := 0;
    taken := 0;
    IF l.id IS NOT NULL THEN
        kind := -1;
    ELSIF l.is_shared THEN
        SELECT CASE WHEN count(*) = 0 THEN 0 WHEN max(take) = 0 THEN 1 ELSE 2 END, coalesce(sum(take), 0)
        INTO kind, taken
        FROM leasehold.holders WHERE name = l.name;
    END IF;
END $$;

-- Whether one at a place of the queue may have the lock now; place null is behind all. `ahead` wait before it, `opens` is
-- when the lock is there for it unless somebody holds it, and those at `passed` let their turn pass.
CREATE OR REPLACE FUNCTION leasehold.stands(
    l leasehold.locks, at bigint, own_place bigint, own_take int,
    OUT fits boolean, OUT ahead int, OUT opens bigint, OUT passed bigint[])
LANGUAGE plpgsql STABLE AS $$
DECLARE
    state  record;
    begins bigint := l.free_since;
    rest   record;
    w      record;
BEGIN
    state := leasehold.taken(l);
    fits := true;
    ahead := 0;
    opens := l.free_since;
    IF l.is_awaited THEN
        FOR w IN
            SELECT place, take, turn FROM leasehold.waiters
            WHERE name = l.name AND live_until > at AND (own_place IS NULL OR place < own_place)
            ORDER BY place
        LOOP
            IF NOT leasehold.fits(state.kind, state.taken, w.take, l.limit_now) THEN
                -- Nobody overtakes it: the others are only counted.
                fits := false;
                SELECT count(*) AS n, coalesce(sum(turn), 0) AS turns INTO rest FROM leasehold.waiters
                WHERE name = l.name AND live_until > at AND place >= w.place AND (own_place IS NULL OR place < own_place);
                ahead := ahead + rest.n;
                opens := opens + rest.turns;
                EXIT;
            END IF;
            ahead := ahead + 1;
            opens := opens + w.turn;
            IF begins + w.turn <= at THEN
                begins := begins + w.turn;
                passed := passed || w.place;
            ELSE
                state.kind := CASE WHEN w.take < 0 THEN -1 WHEN w.take = 0 THEN 1 ELSE 2 END;
                state.taken := state.taken + greatest(w.take, 0);
            END IF;
        END LOOP;
    END IF;
    fits := fits AND leasehold.fits(state.kind, state.taken, own_take, l.limit_now);
END $$;

-- Sends a hint to each waiter that may claim now, except the one that asks, and returns how many can have the lock together.
-- Nothing is sent when nobody waits: a notification takes a lock of the whole database at the commit.
CREATE OR REPLACE FUNCTION leasehold.wake(l leasehold.locks, at bigint, asks uuid) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    state   record;     -- with those whose turn it is
    all_in  record;     -- with all that fit, also those that let their turn pass
    begins  bigint := least(l.free_since, at);
    in_turn boolean := true;
    fit     boolean := true;
    woken   int := 0;
    hints   int := 0;
    most    int;
    ids     jsonb := '{}';
    w       record;
BEGIN
    IF NOT l.is_awaited THEN
        RETURN 0;
    END IF;
    state := leasehold.taken(l);
    all_in := state;
    FOR w IN
        SELECT id, take, turn, channel FROM leasehold.waiters WHERE name = l.name AND live_until > at ORDER BY place
    LOOP
        most := coalesce(most, CASE WHEN w.take < 0 THEN 16 ELSE 1000 END);
        fit := fit AND leasehold.fits(all_in.kind, all_in.taken, w.take, l.limit_now);
        IF fit THEN
            woken := woken + 1;
            all_in.kind := CASE WHEN w.take < 0 THEN -1 WHEN w.take = 0 THEN 1 ELSE 2 END;
            all_in.taken := all_in.taken + greatest(w.take, 0);
        END IF;
        in_turn := in_turn AND leasehold.fits(state.kind, state.taken, w.take, l.limit_now);
        IF in_turn THEN
            IF begins + w.turn <= at THEN
                begins := begins + w.turn;
            ELSE
                state.kind := CASE WHEN w.take < 0 THEN -1 WHEN w.take = 0 THEN 1 ELSE 2 END;
                state.taken := state.taken + greatest(w.take, 0);
            END IF;
            IF w.channel IS NOT NULL AND w.id IS DISTINCT FROM asks THEN
                ids := jsonb_set(ids, ARRAY[w.channel], coalesce(ids -> w.channel, '[]') || to_jsonb(w.id));
                hints := hints + 1;
            END IF;
        END IF;
        EXIT WHEN NOT (fit OR in_turn) OR hints >= most;
    END LOOP;
    PERFORM leasehold.notify(ids);
    RETURN woken;
END $$;

-- Sends the ids of attempts to the channels they are listed under. A notification has room for 200 of them.
CREATE OR REPLACE FUNCTION leasehold.notify(ids jsonb) RETURNS void
LANGUAGE sql AS $$
    SELECT pg_notify(channel, payload)
    FROM (
        SELECT c.key AS channel, string_agg(replace(e.id, '-', ''), '') AS payload
        FROM jsonb_each(ids) AS c, jsonb_array_elements_text(c.value) WITH ORDINALITY AS e (id, n)
        GROUP BY c.key, (e.n - 1) / 200
    ) AS messages
$$;

-- Who holds a name, as people may see it; also those whose lease has expired, if they were found to hold it still.
CREATE OR REPLACE FUNCTION leasehold.seen(
    l leasehold.locks, at bigint, with_expired boolean,
    OUT holders int, OUT free_at bigint, OUT held_by text[], OUT permits bigint)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    holders := 0;
    permits := 0;
    IF l.id IS NOT NULL AND (with_expired OR l.ends > at) THEN
        holders := 1;
        free_at := l.ends;
        held_by := ARRAY[format('%s %s -1 0 %s', l.fence, greatest(l.ends - at, 0), l.holder)];
    ELSIF l.is_shared THEN
        SELECT count(*), min(h.ends), coalesce(sum(h.take), 0) INTO holders, free_at, permits
        FROM leasehold.holders AS h WHERE h.name = l.name AND (with_expired OR h.ends > at);
        held_by := ARRAY(
            SELECT format('%s %s %s %s %s', h.fence, greatest(h.ends - at, 0), h.take, h.out_of, h.holder)
            FROM leasehold.holders AS h WHERE h.name = l.name AND (with_expired OR h.ends > at)
            ORDER BY h.fence LIMIT 100
        );
    END IF;
END $$;

-- A name is a read-write lock or a semaphore, as long as anybody uses it.
CREATE OR REPLACE FUNCTION leasehold.check_kind(l leasehold.locks, at bigint, own_take int) RETURNS void
LANGUAGE plpgsql STABLE AS $$
DECLARE
    used int;
BEGIN
    IF l.id IS NOT NULL THEN
        used := -1;
    ELSIF l.is_shared THEN
        SELECT take INTO used FROM leasehold.holders WHERE name = l.name LIMIT 1;
    END IF;
    IF used IS NULL AND l.is_awaited THEN
        SELECT take INTO used FROM leasehold.waiters WHERE name = l.name AND live_until > at ORDER BY place LIMIT 1;
    END IF;
    IF (used > 0) <> (own_take > 0) THEN
        RAISE 'it is in use as %, not as %', leasehold.kind_of(used), leasehold.kind_of(own_take) USING ERRCODE = 'LH002';
    END IF;
END $$;

CREATE OR REPLACE FUNCTION leasehold.kind_of(take int) RETURNS text
LANGUAGE sql IMMUTABLE AS $$ SELECT CASE WHEN take > 0 THEN 'a semaphore' ELSE 'a read-write lock' END $$;

-- What a session is called that does not say it.
CREATE OR REPLACE FUNCTION leasehold.this_session() RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT format('%s %s %s %s', leasehold.now_us() / 1000, pg_backend_pid(),
                  coalesce(host(inet_client_addr()), 'localhost'), session_user)
$$;

-- The number of permits that a claim may count on. The first one that asks says how many there are; a day after the last
-- use it is forgotten.
CREATE OR REPLACE FUNCTION leasehold.with_limit(l leasehold.locks, at bigint, take int, out_of int, is_new boolean)
RETURNS leasehold.locks
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF l.limit_now IS NULL OR (l.fence < at - 86400000000 AND l.id IS NULL AND NOT l.is_shared AND NOT l.is_awaited) THEN
        l.limit_now := out_of;
        l.limit_first := out_of;
    END IF;
    IF is_new AND out_of NOT IN (l.limit_now, l.limit_first) THEN
        RAISE 'it has % permits, not %', l.limit_now, out_of USING ERRCODE = 'LH003', DETAIL = format('%s %s', l.limit_now, out_of);
    END IF;
    IF take > l.limit_now THEN
        RAISE '% permits were asked for, and there are %', take, l.limit_now USING ERRCODE = 'LH004', DETAIL = format('%s %s', l.limit_now, take);
    END IF;
    RETURN l;
END $$;

-- Waits, as long as `wait_at_most` says, for transactions that have checked the lease of an attempt. Nothing else is
-- locked meanwhile, so nobody waits behind it.
CREATE OR REPLACE FUNCTION leasehold.await_checks(lock_name text, owner uuid) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM leasehold.locks WHERE name = lock_name AND id = owner FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM 1 FROM leasehold.holders WHERE name = lock_name AND id = owner FOR UPDATE;
    END IF;
END $$;

-- Writes a row that is locked.
CREATE OR REPLACE FUNCTION leasehold.write(l leasehold.locks) RETURNS void
LANGUAGE sql AS $$
    UPDATE leasehold.locks
    SET fence = l.fence, id = l.id, holder = l.holder, ends = l.ends, free_since = l.free_since, limit_now = l.limit_now,
        limit_first = l.limit_first, is_shared = l.is_shared, is_awaited = l.is_awaited
    WHERE name = l.name
$$;
