-- Latches and barriers. Whoever decides about one has its row locked; renewals share it.

-- A latch is remembered for two days after its last use.
CREATE OR REPLACE FUNCTION leasehold.latch_sweep_day(at bigint) RETURNS int
LANGUAGE sql IMMUTABLE AS $$ SELECT (at / 86400000000)::int + 2 $$;

-- Where those who wait for a latch are among the watchers of records: no record has such a key.
CREATE OR REPLACE FUNCTION leasehold.latch_key(latch_name text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$ SELECT chr(1) || latch_name $$;

-- The row of a latch, locked; of generation 0 if there is none. One that is made also removes a few that nobody asks for.
CREATE OR REPLACE FUNCTION leasehold.latch_row(latch_name text, makes_it boolean) RETURNS leasehold.latches
LANGUAGE plpgsql AS $$
DECLARE
    l    leasehold.latches;
    gone text[];
BEGIN
    LOOP
        SELECT * INTO l FROM leasehold.latches AS t WHERE t.name = latch_name FOR NO KEY UPDATE;
        IF FOUND OR NOT makes_it THEN
            l.generation := coalesce(l.generation, 0);
            RETURN l;
        END IF;
        gone := ARRAY(
            SELECT t.name FROM leasehold.latches AS t
            WHERE t.sweep_day < leasehold.now_us() / 86400000000
              AND NOT EXISTS (SELECT FROM leasehold.parties AS p WHERE p.name = t.name AND p.ends > leasehold.now_us())
            ORDER BY t.sweep_day LIMIT 4 FOR UPDATE SKIP LOCKED
        );
        IF cardinality(gone) > 0 THEN
            DELETE FROM leasehold.parties WHERE name = ANY (gone);
            DELETE FROM leasehold.watchers WHERE key IN (SELECT leasehold.latch_key(g) FROM unnest(gone) AS g);
            DELETE FROM leasehold.latches WHERE name = ANY (gone);
        END IF;
        INSERT INTO leasehold.latches (name) VALUES (latch_name) ON CONFLICT DO NOTHING;
    END LOOP;
END $$;

-- Writes a latch whose row is locked.
CREATE OR REPLACE FUNCTION leasehold.write_latch(l leasehold.latches, at bigint) RETURNS void
LANGUAGE sql AS $$
    UPDATE leasehold.latches AS t
    SET kind = l.kind, parties = l.parties, generation = l.generation, phase = l.phase, counted = l.counted,
        joined = l.joined, previous = l.previous, floor = l.floor, broken = l.broken, broken_by = l.broken_by,
        sweep_day = leasehold.latch_sweep_day(at)
    WHERE t.name = l.name
$$;

-- Arms a latch that is not there. Nothing is known of generations before: it may have been forgotten.
CREATE OR REPLACE FUNCTION leasehold.arm_latch(l leasehold.latches, latch_kind text, own_parties int, at bigint)
RETURNS leasehold.latches
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF l.generation = 0 THEN
        l.kind := latch_kind;
        l.parties := own_parties;
        l.generation := leasehold.next_fence(0, at);
        l.floor := l.generation - 1;
    END IF;
    RETURN l;
END $$;

-- Arms it again.
CREATE OR REPLACE FUNCTION leasehold.next_generation(l leasehold.latches, at bigint) RETURNS leasehold.latches
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    l.previous := l.generation;
    l.generation := leasehold.next_fence(l.generation, at);
    l.phase := 'armed';
    l.counted := 0;
    RETURN l;
END $$;

-- Ends the participation of all.
CREATE OR REPLACE FUNCTION leasehold.without_parties(l leasehold.latches) RETURNS leasehold.latches
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM leasehold.parties AS p WHERE p.name = l.name;
    l.joined := 0;
    RETURN l;
END $$;

-- Breaks the present generation, and tells those who wait.
CREATE OR REPLACE FUNCTION leasehold.break_latch(l leasehold.latches, who text) RETURNS leasehold.latches
LANGUAGE plpgsql AS $$
BEGIN
    l := leasehold.without_parties(l);
    l.phase := 'broken';
    l.broken_by := who;
    l.broken := l.generation || l.broken;
    IF cardinality(l.broken) > 16 THEN
        l.floor := l.broken[17];
        l.broken := l.broken[1:16];
    END IF;
    PERFORM leasehold.tell_watchers(leasehold.latch_key(l.name));
    RETURN l;
END $$;

-- A latch as it is now: a lease that has ended breaks it. `first_us` is until the first one ends that lasts.
CREATE OR REPLACE FUNCTION leasehold.without_dead(
    l leasehold.latches, at bigint, latch_kind text, OUT kept leasehold.latches, OUT first_us bigint)
LANGUAGE plpgsql AS $$
DECLARE
    who text;
BEGIN
    kept := l;
    IF l.kind <> latch_kind THEN
        RAISE 'it is in use as a %, not as a %', l.kind, latch_kind USING ERRCODE = 'LH002';
    END IF;
    IF l.phase = 'armed' THEN
        -- Locked: a caller with an old picture would not see its renewal.
        SELECT p.holder INTO who FROM leasehold.parties AS p
        WHERE p.name = l.name AND p.ends <= at ORDER BY p.ends LIMIT 1 FOR UPDATE;
        IF FOUND THEN
            kept := leasehold.break_latch(l, who);
        ELSE
            SELECT min(p.ends) - at INTO first_us FROM leasehold.parties AS p WHERE p.name = l.name AND p.ends IS NOT NULL;
        END IF;
    END IF;
END $$;

-- An armed latch has as many parties as it was armed for.
CREATE OR REPLACE FUNCTION leasehold.check_parties(l leasehold.latches, own_parties int) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF own_parties IS NULL OR own_parties NOT BETWEEN 1 AND 10000 THEN
        RAISE 'invalid number of parties "%": expected 1 to 10000', own_parties USING ERRCODE = '22023';
    ELSIF l.phase = 'armed' AND l.parties <> own_parties THEN
        RAISE 'it is armed for % parties, not %', l.parties, own_parties
        USING ERRCODE = 'LH008', DETAIL = format('%s %s', l.parties, own_parties);
    END IF;
END $$;

-- How a generation stands.
CREATE OR REPLACE FUNCTION leasehold.standing(l leasehold.latches, its_generation bigint) RETURNS leasehold.latch_answer
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    answer leasehold.latch_answer;
BEGIN
    answer.generation := l.generation;
    IF its_generation <= l.floor OR its_generation > l.generation OR its_generation = ANY (l.broken) THEN
        answer.said := 'broken';
        answer.who := CASE WHEN l.broken[1] = its_generation THEN l.broken_by END;
    ELSIF its_generation = l.generation AND l.phase = 'armed' THEN
        answer.said := 'armed';
        answer.missing := l.parties - l.counted;
    ELSE
        answer.said := 'open';
    END IF;
    RETURN answer;
END $$;

-- The answer about a latch that is not there.
CREATE OR REPLACE FUNCTION leasehold.no_latch(said text) RETURNS leasehold.latch_answer
LANGUAGE sql IMMUTABLE AS $$ SELECT (said, 0, NULL, NULL, NULL, NULL, NULL)::leasehold.latch_answer $$;

-- Takes part in the present generation; arms a latch that is not there. The same owner again has its lease renewed.
--
-- latch_name  which latch
-- parties     how many it has
-- owner       the secret of the participant
-- latch_kind  latch, or barrier: it arms itself again when it opens
-- ttl_ms      how long its lease lasts unless renewed
-- its_holder  what people may see: "MS PID HOST LABEL"
-- returns     joined, full, open or broken
CREATE OR REPLACE FUNCTION leasehold.join_latch(
    latch_name text, parties int, owner uuid, latch_kind text DEFAULT 'latch', ttl_ms bigint DEFAULT 30000,
    its_holder text DEFAULT NULL, patience_ms bigint DEFAULT NULL)
RETURNS leasehold.latch_answer
LANGUAGE plpgsql AS $$
DECLARE
    l      leasehold.latches;
    me     leasehold.parties;
    at     bigint;
    was    record;
    answer leasehold.latch_answer;
BEGIN
    IF ttl_ms NOT BETWEEN 1 AND 604800000 THEN
        RAISE 'invalid ttl "% ms": expected 1 ms to 7 days', ttl_ms USING ERRCODE = '22023';
    END IF;
    PERFORM leasehold.wait_at_most(patience_ms);
    l := leasehold.latch_row(latch_name, true);
    at := leasehold.now_us();
    IF EXISTS (SELECT FROM leasehold.ended AS e WHERE e.id = owner) THEN
        RAISE 'this attempt has ended' USING ERRCODE = 'LH006';
    END IF;
    was := leasehold.without_dead(leasehold.arm_latch(l, latch_kind, parties, at), at, latch_kind);
    l := was.kept;
    PERFORM leasehold.check_parties(l, parties);
    answer := leasehold.standing(l, l.generation);
    IF l.phase = 'armed' THEN
        SELECT * INTO me FROM leasehold.parties AS p WHERE p.name = l.name AND p.id = owner;
        answer.said := 'joined';
        answer.missing := NULL;
        answer.first_us := was.first_us;
        IF FOUND THEN
            -- One that has counted down needs no lease any more.
            UPDATE leasehold.parties AS p SET ends = at + ttl_ms * 1000
            WHERE p.name = l.name AND p.id = owner AND p.ends IS NOT NULL;
        ELSIF l.joined >= l.parties THEN
            answer.said := 'full';
        ELSE
            INSERT INTO leasehold.parties (name, id, holder, ends)
            VALUES (l.name, owner, coalesce(its_holder, leasehold.this_session()), at + ttl_ms * 1000);
            l.joined := l.joined + 1;
        END IF;
    END IF;
    PERFORM leasehold.write_latch(l, at);
    RETURN answer;
END $$;

-- Counts a participant down, once in a generation.
--
-- its_generation  in which it joined
-- returns         counted, stranger, open or broken
CREATE OR REPLACE FUNCTION leasehold.count_down(
    latch_name text, parties int, owner uuid, its_generation bigint, latch_kind text DEFAULT 'latch',
    patience_ms bigint DEFAULT NULL)
RETURNS leasehold.latch_answer
LANGUAGE plpgsql AS $$
DECLARE
    l      leasehold.latches;
    me     leasehold.parties;
    at     bigint;
    was    record;
    answer leasehold.latch_answer;
BEGIN
    PERFORM leasehold.wait_at_most(patience_ms);
    l := leasehold.latch_row(latch_name, false);
    IF l.generation = 0 THEN
        RETURN leasehold.no_latch('broken');
    END IF;
    at := leasehold.now_us();
    was := leasehold.without_dead(l, at, latch_kind);
    l := was.kept;
    PERFORM leasehold.check_parties(l, parties);
    answer := leasehold.standing(l, its_generation);
    SELECT * INTO me FROM leasehold.parties AS p WHERE p.name = l.name AND p.id = owner;
    IF me.arrived = its_generation THEN
        answer.said := 'counted';
        answer.again := true;
        answer.place := me.place;
        answer.missing := CASE WHEN its_generation = l.generation THEN l.parties - l.counted ELSE 0 END;
    ELSIF me.id IS NOT NULL AND its_generation = l.generation THEN
        answer.said := 'counted';
        answer.again := false;
        answer.place := l.counted;
        l.counted := l.counted + 1;
        UPDATE leasehold.parties AS p
        SET arrived = its_generation, place = answer.place, ends = CASE WHEN l.kind = 'barrier' THEN p.ends END
        WHERE p.name = l.name AND p.id = owner;
        answer.missing := l.parties - l.counted;
        IF answer.missing = 0 THEN
            PERFORM leasehold.tell_watchers(leasehold.latch_key(l.name));
            IF l.kind = 'barrier' THEN
                l := leasehold.next_generation(l, at);
                answer.generation := l.generation;
            ELSE
                l := leasehold.without_parties(l);
                l.phase := 'open';
            END IF;
        END IF;
    ELSIF answer.said = 'armed' THEN
        answer.said := 'stranger';
        answer.missing := NULL;
    END IF;
    answer.first_us := CASE WHEN l.phase = 'armed' THEN was.first_us END;
    PERFORM leasehold.write_latch(l, at);
    RETURN answer;
END $$;

-- Takes part no longer. A participant of a latch that has counted down stays counted; a party of a barrier that has, breaks it.
--
-- breaks      whether one that has not counted down breaks it, too
-- may_arrive  a request to join of this attempt may still arrive: it is remembered that it has ended
-- returns     left
CREATE OR REPLACE FUNCTION leasehold.leave_latch(
    latch_name text, owner uuid, breaks boolean DEFAULT true, latch_kind text DEFAULT 'latch',
    may_arrive boolean DEFAULT false, patience_ms bigint DEFAULT NULL)
RETURNS leasehold.latch_answer
LANGUAGE plpgsql AS $$
DECLARE
    l      leasehold.latches;
    me     leasehold.parties;
    at     bigint;
    was    record;
    answer leasehold.latch_answer;
BEGIN
    PERFORM leasehold.wait_at_most(patience_ms);
    l := leasehold.latch_row(latch_name, may_arrive);
    at := leasehold.now_us();
    IF may_arrive THEN
        PERFORM leasehold.end_attempt(owner);
    END IF;
    IF l.generation = 0 THEN
        IF may_arrive THEN
            PERFORM leasehold.write_latch(l, at);
        END IF;
        RETURN leasehold.no_latch('left');
    END IF;
    was := leasehold.without_dead(l, at, latch_kind);
    l := was.kept;
    answer.said := 'left';
    answer.generation := l.generation;
    SELECT * INTO me FROM leasehold.parties AS p WHERE p.name = l.name AND p.id = owner;
    IF FOUND AND (me.arrived <> l.generation OR l.kind = 'barrier') THEN
        IF breaks OR me.arrived = l.generation THEN
            l := leasehold.break_latch(l, me.holder);
        ELSE
            DELETE FROM leasehold.parties AS p WHERE p.name = l.name AND p.id = owner;
            l.joined := l.joined - 1;
        END IF;
    END IF;
    answer.first_us := CASE WHEN l.phase = 'armed' THEN was.first_us END;
    PERFORM leasehold.write_latch(l, at);
    RETURN answer;
END $$;

-- Says how a generation stands; arms a latch that is not there if none is named.
--
-- its_generation  which one; null for the present one
-- owner, channel  who is to be told when it is over, and where; null for nobody
-- returns         armed, open or broken
CREATE OR REPLACE FUNCTION leasehold.look_at_latch(
    latch_name text, parties int, latch_kind text DEFAULT 'latch', its_generation bigint DEFAULT NULL,
    owner uuid DEFAULT NULL, channel text DEFAULT NULL, patience_ms bigint DEFAULT NULL)
RETURNS leasehold.latch_answer
LANGUAGE plpgsql AS $$
DECLARE
    l      leasehold.latches;
    at     bigint;
    was    record;
    answer leasehold.latch_answer;
BEGIN
    PERFORM leasehold.wait_at_most(patience_ms);
    l := leasehold.latch_row(latch_name, its_generation IS NULL);
    IF l.generation = 0 AND its_generation IS NOT NULL THEN
        RETURN leasehold.no_latch('broken');
    END IF;
    at := leasehold.now_us();
    was := leasehold.without_dead(leasehold.arm_latch(l, latch_kind, parties, at), at, latch_kind);
    l := was.kept;
    PERFORM leasehold.check_parties(l, parties);
    answer := leasehold.standing(l, coalesce(its_generation, l.generation));
    answer.first_us := CASE WHEN l.phase = 'armed' THEN was.first_us END;
    PERFORM leasehold.write_latch(l, at);
    IF answer.said = 'armed' AND channel IS NOT NULL THEN
        -- Whoever still waits asks again within a minute.
        PERFORM leasehold.watch(leasehold.latch_key(l.name), owner, channel, at + 60000000);
    END IF;
    RETURN answer;
END $$;

-- Arms a latch again that is open or broken.
--
-- parties         how many it has from now on
-- its_generation  the one that was seen
-- returns         rearmed, also by the same request before; other generation; or armed
CREATE OR REPLACE FUNCTION leasehold.rearm_latch(
    latch_name text, parties int, its_generation bigint, latch_kind text DEFAULT 'latch', patience_ms bigint DEFAULT NULL)
RETURNS leasehold.latch_answer
LANGUAGE plpgsql AS $$
DECLARE
    l      leasehold.latches;
    at     bigint;
    was    record;
    answer leasehold.latch_answer;
BEGIN
    PERFORM leasehold.wait_at_most(patience_ms);
    l := leasehold.latch_row(latch_name, false);
    IF l.generation = 0 THEN
        RETURN leasehold.no_latch('other generation');
    END IF;
    at := leasehold.now_us();
    was := leasehold.without_dead(l, at, latch_kind);
    l := was.kept;
    PERFORM leasehold.check_parties(l, parties);
    IF its_generation <> l.generation THEN
        answer.said := CASE WHEN l.phase = 'armed' AND its_generation = l.previous AND its_generation > 0
                            THEN 'rearmed' ELSE 'other generation' END;
        answer.first_us := CASE WHEN l.phase = 'armed' THEN was.first_us END;
    ELSIF l.phase = 'armed' THEN
        answer := leasehold.standing(l, its_generation);
        answer.first_us := was.first_us;
    ELSE
        l := leasehold.without_parties(leasehold.next_generation(l, at));
        l.parties := rearm_latch.parties;
        answer.said := 'rearmed';
    END IF;
    answer.generation := l.generation;
    PERFORM leasehold.write_latch(l, at);
    RETURN answer;
END $$;

-- What people may see of a latch. Nothing is locked or written, and no owner is shown.
--
-- returns  nulls if there is none; said: armed, open or broken; participants: the first of them, as "COUNTED LEFT_US HOLDER",
--          with -1 for one that needs no lease
CREATE OR REPLACE FUNCTION leasehold.show_latch(
    latch_name text,
    OUT kind text, OUT parties int, OUT generation bigint, OUT said text, OUT missing int, OUT who text, OUT joined int,
    OUT participants text[])
LANGUAGE plpgsql STABLE AS $$
DECLARE
    l  leasehold.latches;
    at bigint := leasehold.now_us();
    s  leasehold.latch_answer;
BEGIN
    SELECT * INTO l FROM leasehold.latches AS t WHERE t.name = latch_name AND t.generation > 0;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    kind := l.kind;
    parties := l.parties;
    generation := l.generation;
    joined := 0;
    IF l.phase = 'armed' THEN
        SELECT p.holder INTO who FROM leasehold.parties AS p
        WHERE p.name = l.name AND p.ends <= at ORDER BY p.ends LIMIT 1;
        IF FOUND THEN
            said := 'broken';
            RETURN;
        END IF;
    END IF;
    s := leasehold.standing(l, l.generation);
    said := s.said;
    missing := s.missing;
    who := s.who;
    joined := l.joined;
    participants := ARRAY(
        SELECT format('%s %s %s', (p.arrived = l.generation)::int, coalesce(p.ends - at, -1), p.holder)
        FROM leasehold.parties AS p WHERE p.name = l.name LIMIT 100
    );
END $$;
