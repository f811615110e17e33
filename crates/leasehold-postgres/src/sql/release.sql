-- Gives a lease back, or ends an attempt that waits or may have been granted.
--
-- lock_name    what is held
-- owner        the secret of the attempt
-- lock_mode    how it is held
-- may_arrive   a claim of this attempt may still arrive: it is remembered that it has ended
-- patience_ms  how long to wait for transactions that have checked the lease
-- returns      outcome: released, expired or taken; woken: how many can have the lock next; fence: of the present holder
CREATE OR REPLACE FUNCTION leasehold.release(
    lock_name text,
    owner uuid,
    lock_mode text DEFAULT 'exclusive',
    may_arrive boolean DEFAULT false,
    patience_ms bigint DEFAULT NULL,
    OUT outcome text, OUT woken int, OUT fence bigint)
LANGUAGE plpgsql AS $$
DECLARE
    l      leasehold.locks;
    before leasehold.locks;
    at     bigint;
    ended  bigint;
BEGIN
    woken := 0;
    -- The ordinary case, flat: nobody waits, and no open transaction has checked the lease.
    IF NOT may_arrive THEN
        PERFORM 1 FROM leasehold.locks AS k
        WHERE k.name = lock_name AND k.id = owner AND NOT k.is_awaited
        FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            at := leasehold.now_us();
            UPDATE leasehold.locks AS k
            SET id = NULL, holder = NULL, free_since = greatest(k.free_since, at)
            WHERE k.name = lock_name AND k.ends > at;
            IF FOUND THEN
                outcome := 'released';
                RETURN;
            END IF;
        END IF;
    END IF;
    PERFORM leasehold.wait_at_most(patience_ms);
    PERFORM leasehold.await_checks(lock_name, owner);
    outcome := 'expired';
    IF may_arrive THEN
        l := leasehold.lock_row(lock_name);
        PERFORM leasehold.end_attempt(owner);
    ELSE
        SELECT * INTO l FROM leasehold.locks AS k WHERE k.name = lock_name FOR NO KEY UPDATE;
        IF NOT FOUND THEN
            RETURN;
        END IF;
    END IF;
    at := leasehold.now_us();
    before := l;
    IF l.is_awaited THEN
        DELETE FROM leasehold.waiters AS w WHERE w.name = l.name AND (w.id = owner OR w.gives_up <= at);
        l.is_awaited := EXISTS (SELECT FROM leasehold.waiters AS w WHERE w.name = l.name);
    END IF;
    IF l.id = owner THEN
        -- Granted since the checks were awaited: nobody else can have checked it, and nobody will.
        PERFORM 1 FROM leasehold.locks AS k WHERE k.name = l.name FOR UPDATE;
        ended := l.ends;
        l.id := NULL;
        l.holder := NULL;
    ELSIF l.is_shared THEN
        DELETE FROM leasehold.holders AS h WHERE h.name = l.name AND h.id = owner RETURNING h.ends INTO ended;
        l.is_shared := EXISTS (SELECT FROM leasehold.holders AS h WHERE h.name = l.name);
    END IF;
    IF ended IS NOT NULL THEN
        l.free_since := greatest(l.free_since, least(ended, at));
    END IF;
    IF may_arrive OR l IS DISTINCT FROM before THEN
        PERFORM leasehold.write(l);
    END IF;
    l := (leasehold.without_expired_in_view(l, at));
    woken := leasehold.wake(l, at, NULL);
    IF ended > at THEN
        outcome := 'released';
        RETURN;
    END IF;
    woken := 0;
    IF l.id IS NOT NULL THEN
        fence := l.fence;
    ELSIF lock_mode = 'exclusive' THEN
        SELECT min(h.fence) INTO fence FROM leasehold.holders AS h WHERE h.name = l.name AND h.ends > at;
    END IF;
    IF fence IS NOT NULL THEN
        outcome := 'taken';
    END IF;
END $$;

-- A row as if an exclusive lease that has expired had been given back at its end. Nothing is locked or written.
CREATE OR REPLACE FUNCTION leasehold.without_expired_in_view(l leasehold.locks, at bigint) RETURNS leasehold.locks
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF l.id IS NOT NULL AND l.ends <= at THEN
        l.id := NULL;
        l.free_since := greatest(l.free_since, l.ends);
    END IF;
    RETURN l;
END $$;

-- Remembers that an attempt has ended, longer than anything of it can be under way, and forgets a few old ones.
CREATE OR REPLACE FUNCTION leasehold.end_attempt(owner uuid) RETURNS void
LANGUAGE sql AS $$
    DELETE FROM leasehold.ended WHERE id IN (
        SELECT id FROM leasehold.ended WHERE until <= leasehold.now_us() ORDER BY until LIMIT 4 FOR UPDATE SKIP LOCKED
    );
    INSERT INTO leasehold.ended VALUES (owner, leasehold.now_us() + 1200000000) ON CONFLICT DO NOTHING
$$;

-- Takes a lease away from its holder if it is still the one with the fence that was seen.
--
-- lock_name    what is held
-- seen         the fence that was seen
-- patience_ms  how long to wait for transactions that have checked the lease
-- returns      as leasehold.release
CREATE OR REPLACE FUNCTION leasehold.force_release(
    lock_name text,
    seen bigint,
    patience_ms bigint DEFAULT NULL,
    OUT outcome text, OUT woken int, OUT fence bigint)
LANGUAGE plpgsql AS $$
DECLARE
    owner uuid;
BEGIN
    SELECT k.id INTO owner FROM leasehold.locks AS k
    WHERE k.name = lock_name AND k.fence = seen AND k.id IS NOT NULL AND k.ends > leasehold.now_us();
    IF owner IS NULL THEN
        SELECT h.id INTO owner FROM leasehold.holders AS h
        WHERE h.name = lock_name AND h.fence = seen AND h.ends > leasehold.now_us();
    END IF;
    -- Without one, nobody's id finds what is in the way.
    SELECT r.outcome, r.woken, r.fence INTO outcome, woken, fence
    FROM leasehold.release(lock_name, coalesce(owner, gen_random_uuid()), 'exclusive', false, patience_ms) AS r;
END $$;
