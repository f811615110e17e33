-- Renews leases that are still held, of locks, records and participants of latches. Never brings back one that is gone.
--
-- kinds     lock, record or latch
-- names     what is held
-- owners    by whom
-- lasts_ms  how long each is to last from now, with its lock-delay
-- returns   whether each was renewed, in order
CREATE OR REPLACE FUNCTION leasehold.renew(kinds text[], names text[], owners uuid[], lasts_ms bigint[], patience_ms bigint)
RETURNS boolean[]
LANGUAGE plpgsql AS $$
DECLARE
    renewed boolean[] := array_fill(false, ARRAY[cardinality(names)]);
    keeps   int := leasehold.latch_sweep_day(leasehold.now_us());
    r       record;
BEGIN
    PERFORM leasehold.wait_at_most(patience_ms);
    -- In the order of names: two such calls never wait for each other.
    FOR r IN
        SELECT * FROM unnest(kinds, names, owners, lasts_ms) WITH ORDINALITY AS u (kind, name, owner, lasts, n)
        ORDER BY u.name COLLATE "C", u.n
    LOOP
        IF r.kind = 'lock' THEN
            UPDATE leasehold.locks AS l SET ends = leasehold.now_us() + r.lasts * 1000
            WHERE l.name = r.name AND l.id = r.owner AND l.ends > leasehold.now_us();
            IF NOT FOUND THEN
                UPDATE leasehold.holders AS h SET ends = leasehold.now_us() + r.lasts * 1000
                WHERE h.name = r.name AND h.id = r.owner AND h.ends > leasehold.now_us();
            END IF;
        ELSIF r.kind = 'latch' THEN
            UPDATE leasehold.latches AS t SET sweep_day = keeps WHERE t.name = r.name AND t.sweep_day < keeps;
            -- Shared by all who renew; nobody decides about the latch meanwhile.
            PERFORM 1 FROM leasehold.latches AS t WHERE t.name = r.name FOR SHARE;
            UPDATE leasehold.parties AS p SET ends = leasehold.now_us() + r.lasts * 1000
            WHERE p.name = r.name AND p.id = r.owner AND p.ends > leasehold.now_us();
        ELSE
            UPDATE leasehold.records AS t
            SET ends = leasehold.now_us() + r.lasts * 1000,
                sweep_day = leasehold.sweep_day(leasehold.now_us() + r.lasts * 1000, t.fence)
            WHERE t.key = r.name AND t.id = r.owner AND t.state = 'running' AND t.ends > leasehold.now_us();
        END IF;
        renewed[r.n] := FOUND;
    END LOOP;
    RETURN renewed;
END $$;

-- Renews one lease.
--
-- lock_name  what is held
-- owner      by whom
-- ttl_ms     how long it is to last from now
-- returns    false if it is gone
CREATE OR REPLACE FUNCTION leasehold.renew(lock_name text, owner uuid, ttl_ms bigint DEFAULT 30000) RETURNS boolean
LANGUAGE sql AS $$
    SELECT (leasehold.renew(ARRAY['lock'], ARRAY[lock_name], ARRAY[owner], ARRAY[ttl_ms], NULL))[1]
$$;

-- Makes a writer a reader, or the only reader a writer, without letting anybody in between, and renews its lease.
--
-- lock_name    what is held
-- owner        by whom
-- lock_mode    exclusive or shared
-- lasts_ms     how long the lease is to last from now, with its lock-delay
-- patience_ms  how long to wait for transactions that have checked the lease
-- returns      outcome: done, busy or gone; fence: a new one for a reader that became a writer
CREATE OR REPLACE FUNCTION leasehold.convert(
    lock_name text, owner uuid, lock_mode text, lasts_ms bigint DEFAULT 30000, patience_ms bigint DEFAULT NULL,
    OUT outcome text, OUT fence bigint)
LANGUAGE plpgsql AS $$
DECLARE
    l       leasehold.locks;
    mine    leasehold.holders;
    at      bigint;
    to_take int := leasehold.take_of(lock_mode, 1);
BEGIN
    PERFORM leasehold.wait_at_most(patience_ms);
    PERFORM leasehold.await_checks(lock_name, owner);
    SELECT * INTO l FROM leasehold.locks AS k WHERE k.name = lock_name FOR NO KEY UPDATE;
    at := leasehold.now_us();
    outcome := 'gone';
    IF l.id = owner AND l.ends > at THEN
        mine := (l.name, owner, l.fence, -1, 0, l.holder, l.ends);
    ELSIF l.is_shared THEN
        SELECT * INTO mine FROM leasehold.holders AS h WHERE h.name = l.name AND h.id = owner AND h.ends > at;
    END IF;
    IF mine.id IS NULL THEN
        RETURN;
    END IF;
    IF (mine.take > 0) <> (to_take > 0) THEN
        RAISE 'it is in use as %, not as %', leasehold.kind_of(mine.take), leasehold.kind_of(to_take)
        USING ERRCODE = 'LH002';
    END IF;
    fence := mine.fence;
    mine.ends := at + lasts_ms * 1000;
    IF mine.take < 0 AND to_take = 0 THEN
        INSERT INTO leasehold.holders VALUES (l.name, owner, mine.fence, 0, 0, mine.holder, mine.ends);
        l.id := NULL;
        l.holder := NULL;
        l.is_shared := true;
        PERFORM leasehold.write(l);
        PERFORM leasehold.wake(l, at, owner);
    ELSIF mine.take = 0 AND to_take < 0 THEN
        l := (leasehold.without_expired(l, at)).kept;
        IF EXISTS (SELECT FROM leasehold.holders AS h WHERE h.name = l.name AND h.id <> owner) THEN
            outcome := 'busy';
            fence := NULL;
            RETURN;
        END IF;
        DELETE FROM leasehold.holders AS h WHERE h.name = l.name AND h.id = owner;
        -- Above those of all readers before it.
        l.fence := leasehold.next_fence(l.fence, at);
        l.id := owner;
        l.holder := mine.holder;
        l.ends := mine.ends;
        l.is_shared := false;
        PERFORM leasehold.write(l);
        fence := l.fence;
    ELSIF mine.take < 0 THEN
        UPDATE leasehold.locks AS k SET ends = mine.ends WHERE k.name = l.name;
    ELSE
        UPDATE leasehold.holders AS h SET ends = mine.ends WHERE h.name = l.name AND h.id = owner;
    END IF;
    outcome := 'done';
END $$;

-- Gives an exclusive lease to the first live waiter that people see like this, so that at no time nobody holds the lock.
--
-- lock_name    what is held
-- owner        by whom
-- next_holder  the holder text of the waiter
-- patience_ms  how long to wait for transactions that have checked the lease
-- returns      outcome: done, not waiting or gone; fence: of the next holder
CREATE OR REPLACE FUNCTION leasehold.hand_to(
    lock_name text, owner uuid, next_holder text, patience_ms bigint DEFAULT NULL,
    OUT outcome text, OUT fence bigint)
LANGUAGE plpgsql AS $$
DECLARE
    l      leasehold.locks;
    waiter leasehold.waiters;
    at     bigint;
BEGIN
    PERFORM leasehold.wait_at_most(patience_ms);
    PERFORM leasehold.await_checks(lock_name, owner);
    SELECT * INTO l FROM leasehold.locks AS k WHERE k.name = lock_name FOR NO KEY UPDATE;
    at := leasehold.now_us();
    outcome := 'gone';
    IF l.id IS DISTINCT FROM owner OR l.ends <= at THEN
        IF EXISTS (SELECT FROM leasehold.holders AS h WHERE h.name = lock_name AND h.id = owner AND h.ends > at) THEN
            RAISE 'only the holder of an exclusive lock can name the next one' USING ERRCODE = 'LH009';
        END IF;
        RETURN;
    END IF;
    SELECT * INTO waiter FROM leasehold.waiters AS w
    WHERE w.name = l.name AND w.live_until > at AND w.holder = next_holder ORDER BY w.place LIMIT 1;
    IF NOT FOUND THEN
        outcome := 'not waiting';
        RETURN;
    END IF;
    DELETE FROM leasehold.waiters AS w WHERE w.name = l.name AND w.place = waiter.place;
    l.fence := leasehold.next_fence(l.fence, at);
    l.free_since := at;
    l.id := NULL;
    l.holder := NULL;
    l.is_awaited := EXISTS (SELECT FROM leasehold.waiters AS w WHERE w.name = l.name);
    IF waiter.take < 0 THEN
        l.id := waiter.id;
        l.holder := waiter.holder;
        l.ends := at + waiter.lasts;
    ELSE
        INSERT INTO leasehold.holders
        VALUES (l.name, waiter.id, l.fence, waiter.take, waiter.out_of, waiter.holder, at + waiter.lasts);
        l.is_shared := true;
    END IF;
    PERFORM leasehold.write(l);
    IF waiter.channel IS NOT NULL THEN
        PERFORM leasehold.notify(jsonb_build_object(waiter.channel, jsonb_build_array(waiter.id)));
    END IF;
    outcome := 'done';
    fence := l.fence;
END $$;

-- Changes the number of permits of a semaphore, whether in use or not. Nobody loses permits by it.
--
-- lock_name  the semaphore
-- permits    how many permits there are from now on
CREATE OR REPLACE FUNCTION leasehold.set_limit(lock_name text, permits int, patience_ms bigint DEFAULT NULL) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    l  leasehold.locks;
    at bigint;
BEGIN
    IF permits < 1 THEN
        RAISE 'invalid number of permits "%": expected 1 or more', permits USING ERRCODE = '22023';
    END IF;
    PERFORM leasehold.wait_at_most(patience_ms);
    l := leasehold.lock_row(lock_name);
    at := leasehold.now_us();
    l := (leasehold.without_expired(l, at)).kept;
    PERFORM leasehold.check_kind(l, at, permits);
    -- The time of the last use, as a grant would leave it.
    l.fence := leasehold.next_fence(l.fence, at);
    IF l.limit_now < permits THEN
        -- The turns of those who wait begin now, or the first to claim would overtake the others.
        l.free_since := at;
    END IF;
    l.limit_now := permits;
    l.limit_first := coalesce(l.limit_first, permits);
    PERFORM leasehold.write(l);
    PERFORM leasehold.wake(l, at, NULL);
END $$;
