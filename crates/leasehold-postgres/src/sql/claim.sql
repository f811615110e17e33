-- Claims a lock, or asks again: the same owner gets the same answer, and a holder's lease is refreshed.
--
-- lock_name      what is to be held
-- owner          the secret of this attempt; keep it, it gives the lock back
-- ttl_ms         how long the lease lasts
-- lock_mode      exclusive, shared or permits
-- permits out_of how many permits of how many
-- wait_ms        how long the attempt may wait in the queue; null asks once
-- poll_ms        longest time between two claims of an attempt that waits
-- lock_delay_ms  how long the lock stays closed after the lease expired
-- holder         what people may see: "MS PID HOST LABEL"
-- channel        where hints go while it waits
-- patience_ms    how long to wait for the row of the name
-- returns        leasehold.answer
CREATE OR REPLACE FUNCTION leasehold.claim(
    lock_name text,
    owner uuid DEFAULT gen_random_uuid(),
    ttl_ms bigint DEFAULT 30000,
    lock_mode text DEFAULT 'exclusive',
    permits int DEFAULT 1,
    out_of int DEFAULT 1,
    wait_ms bigint DEFAULT NULL,
    poll_ms bigint DEFAULT 1000,
    lock_delay_ms bigint DEFAULT 0,
    holder text DEFAULT NULL,
    channel text DEFAULT NULL,
    patience_ms bigint DEFAULT NULL)
RETURNS leasehold.answer
LANGUAGE plpgsql AS $$
DECLARE
    l      leasehold.locks;
    at     bigint;
    answer leasehold.answer;
BEGIN
    -- The ordinary case, flat: nobody has it, and nobody waits. Anything else, also a row that somebody has locked, goes on below.
    IF lock_mode = 'exclusive' AND ttl_ms BETWEEN 1 AND 604800000 AND lock_delay_ms BETWEEN 0 AND 604800000 THEN
        PERFORM 1 FROM leasehold.locks AS k
        WHERE k.name = lock_name AND k.id IS NULL AND NOT k.is_shared AND NOT k.is_awaited
        FOR NO KEY UPDATE SKIP LOCKED;
        IF FOUND THEN
            at := leasehold.now_us();
            -- A statement of its own: what has ended since the row was locked is seen.
            UPDATE leasehold.locks AS k
            SET fence = greatest(k.fence + 1, at), id = claim.owner, ends = at + (ttl_ms + lock_delay_ms) * 1000,
                holder = coalesce(claim.holder, leasehold.this_session()), free_since = least(k.free_since, at)
            WHERE k.name = lock_name AND greatest(k.fence + 1, at) < 9007199254740992
              AND NOT EXISTS (SELECT FROM leasehold.ended AS e WHERE e.id = claim.owner)
            RETURNING k.fence INTO answer.fence;
            IF FOUND THEN
                answer.outcome := 'granted';
                answer.owner := owner;
                RETURN answer;
            END IF;
        END IF;
    END IF;
    PERFORM leasehold.wait_at_most(patience_ms);
    l := leasehold.lock_row(lock_name);
    RETURN leasehold.decide(l, owner, ttl_ms, leasehold.take_of(lock_mode, permits), out_of,
                            wait_ms, poll_ms, lock_delay_ms, holder, channel);
END $$;

-- Decides a claim of a name whose row is locked.
CREATE OR REPLACE FUNCTION leasehold.decide(
    l leasehold.locks, owner uuid, ttl_ms bigint, own_take int, own_out_of int, wait_ms bigint, poll_ms bigint,
    lock_delay_ms bigint, own_holder text, own_channel text)
RETURNS leasehold.answer
LANGUAGE plpgsql AS $$
DECLARE
    at     bigint := leasehold.now_us();
    lasts  bigint := (ttl_ms + lock_delay_ms) * 1000;
    answer leasehold.answer;
    before leasehold.locks := l;
    mine   leasehold.waiters;
    was    record;
    seen   record;
    stands record;
BEGIN
    IF ttl_ms NOT BETWEEN 1 AND 604800000 OR lock_delay_ms NOT BETWEEN 0 AND 604800000 THEN
        RAISE 'invalid ttl "% ms": expected 1 ms to 7 days', ttl_ms USING ERRCODE = '22023';
    END IF;
    IF EXISTS (SELECT FROM leasehold.ended WHERE id = owner) THEN
        RAISE 'this attempt has ended' USING ERRCODE = 'LH006';
    END IF;
    answer.owner := owner;
    -- A claim of its holder refreshes it.
    IF l.id = owner AND l.ends > at THEN
        UPDATE leasehold.locks SET ends = at + lasts WHERE name = l.name;
        answer.outcome := 'granted';
        answer.fence := l.fence;
        RETURN answer;
    ELSIF l.is_shared THEN
        UPDATE leasehold.holders AS h SET ends = at + lasts WHERE h.name = l.name AND h.id = owner AND h.ends > at
        RETURNING h.fence INTO answer.fence;
        IF FOUND THEN
            answer.outcome := 'granted';
            RETURN answer;
        END IF;
    END IF;

    was := leasehold.without_expired(l, at);
    l := was.kept;
    IF l.is_awaited THEN
        SELECT * INTO mine FROM leasehold.waiters AS w WHERE w.name = l.name AND w.id = owner;
    END IF;
    PERFORM leasehold.check_kind(l, at, own_take);
    IF own_take > 0 THEN
        l := leasehold.with_limit(l, at, own_take, own_out_of, mine.id IS NULL);
    END IF;
    stands := leasehold.stands(l, at, mine.place, own_take);

    IF stands.fits THEN
        IF l.is_awaited THEN
            DELETE FROM leasehold.waiters AS w WHERE w.name = l.name AND (w.id = owner OR w.gives_up <= at);
            IF stands.passed IS NOT NULL THEN
                UPDATE leasehold.waiters AS w SET turn = 0 WHERE w.name = l.name AND w.place = ANY (stands.passed);
            END IF;
            l.is_awaited := EXISTS (SELECT FROM leasehold.waiters AS w WHERE w.name = l.name);
        END IF;
        l.fence := leasehold.next_fence(l.fence, at);
        IF own_take < 0 THEN
            l.id := owner;
            l.holder := coalesce(own_holder, leasehold.this_session());
            l.ends := at + lasts;
        ELSE
            -- One of this attempt that has expired may be left.
            DELETE FROM leasehold.holders AS h WHERE h.name = l.name AND h.id = owner;
            INSERT INTO leasehold.holders
            VALUES (l.name, owner, l.fence, own_take, own_out_of, coalesce(own_holder, leasehold.this_session()), at + lasts);
            l.is_shared := true;
        END IF;
        PERFORM leasehold.write(l);
        answer.outcome := 'granted';
        answer.fence := l.fence;
        RETURN answer;
    END IF;

    seen := leasehold.seen(l, at, true);
    answer.outcome := 'busy';
    answer.fence := l.fence;
    answer.ahead := stands.ahead;
    answer.holders := seen.holders;
    answer.held_by := seen.held_by;
    answer.free_in_us := greatest(coalesce(seen.free_at, stands.opens) - at, CASE WHEN seen.holders > 0 THEN 100000 ELSE 0 END);
    IF wait_ms IS NOT NULL THEN
        answer.outcome := 'queued';
        IF mine.id IS NULL AND stands.ahead >= 10000 THEN
            RAISE '10000 attempts wait for this name already' USING ERRCODE = 'LH005';
        END IF;
        mine.gives_up := coalesce(mine.gives_up, at + wait_ms * 1000);
        mine.live_until := least(mine.gives_up, at + least(greatest(poll_ms * 3, 500), 15000) * 1000);
        mine.turn := least(greatest(poll_ms * 2, 100), 2000) * 1000;
        IF mine.id IS NOT NULL THEN
            UPDATE leasehold.waiters AS w SET live_until = mine.live_until, turn = mine.turn, channel = own_channel
            WHERE w.name = l.name AND w.place = mine.place;
        ELSE
            INSERT INTO leasehold.waiters (name, id, take, out_of, holder, arrived, gives_up, live_until, turn, lasts, channel)
            VALUES (l.name, owner, own_take, own_out_of, coalesce(own_holder, leasehold.this_session()), at, mine.gives_up,
                    mine.live_until, mine.turn, lasts, own_channel);
            l.is_awaited := true;
        END IF;
    END IF;
    -- What has only expired is found again; what was removed is not.
    IF was.removed OR l.is_awaited <> before.is_awaited OR l.free_since < before.free_since THEN
        PERFORM leasehold.write(l);
    END IF;
    IF l.free_since <> before.free_since OR seen.holders = 0 THEN
        PERFORM leasehold.wake(l, at, owner);
    END IF;
    RETURN answer;
END $$;

-- Claims several locks, each name once, all or none. A refusal leaves no trace.
--
-- The arrays have an element for each claim, with the meaning that `leasehold.claim` gives them, in ascending order of
-- names: two such calls never wait for each other.
-- returns  an answer for each, all of them granted; or one that is busy, or why it is refused whoever holds the lock:
--          SQLSTATE, message and detail of the error that a claim of this name alone would be
CREATE OR REPLACE FUNCTION leasehold.claim_all(
    lock_names text[], owners uuid[], ttls_ms bigint[], takes int[], out_ofs int[], lock_delays_ms bigint[],
    holder_texts text[], patience_ms bigint DEFAULT NULL)
RETURNS TABLE (claim int, answer leasehold.answer, refusal text[])
LANGUAGE plpgsql AS $$
DECLARE
    l   leasehold.locks;
    why text;
BEGIN
    PERFORM leasehold.wait_at_most(patience_ms);
    BEGIN
        FOR n IN 1 .. cardinality(lock_names) LOOP
            claim := n;
            l := leasehold.lock_row(lock_names[n]);
            answer := leasehold.decide(l, owners[n], ttls_ms[n], takes[n], out_ofs[n], NULL, 0, lock_delays_ms[n],
                                       holder_texts[n], NULL);
            IF (answer).outcome <> 'granted' THEN
                -- What was granted before is undone with this block. A code that ends with 000 would stand for all of its class.
                RAISE 'refused' USING ERRCODE = 'LH010';
            END IF;
            RETURN NEXT;
        END LOOP;
    EXCEPTION
        WHEN SQLSTATE 'LH010' THEN
            RETURN NEXT;
        WHEN SQLSTATE 'LH002' OR SQLSTATE 'LH003' OR SQLSTATE 'LH004' THEN
            GET STACKED DIAGNOSTICS why = PG_EXCEPTION_DETAIL;
            refusal := ARRAY[SQLSTATE, SQLERRM, why];
            RETURN NEXT;
    END;
END $$;
