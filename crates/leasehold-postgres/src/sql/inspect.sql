-- What people may see of names. Nothing is locked or written, and no owner is shown.

-- One name.
--
-- returns  holders and waiting: how many; held_by and waiters: the first of them, as in leasehold.answer and as
--          "TAKE OUT_OF WAITING_US MS PID HOST LABEL"
CREATE OR REPLACE FUNCTION leasehold.inspect(
    lock_name text,
    OUT holders int, OUT free_in_us bigint, OUT held_by text[], OUT permit_limit int, OUT permits_taken bigint,
    OUT waiting int, OUT waiters text[])
LANGUAGE plpgsql STABLE AS $$
DECLARE
    l  leasehold.locks;
    at bigint := leasehold.now_us();
BEGIN
    SELECT * INTO l FROM leasehold.locks AS k WHERE k.name = lock_name;
    SELECT s.holders, s.free_at - at, s.held_by, s.permits INTO holders, free_in_us, held_by, permits_taken
    FROM leasehold.seen(l, at, false) AS s;
    permit_limit := l.limit_now;
    waiting := 0;
    IF l.is_awaited THEN
        SELECT count(*) INTO waiting FROM leasehold.waiters AS w WHERE w.name = lock_name AND w.live_until > at;
        waiters := ARRAY(
            SELECT format('%s %s %s %s', w.take, w.out_of, greatest(at - w.arrived, 0), w.holder) FROM leasehold.waiters AS w
            WHERE w.name = lock_name AND w.live_until > at ORDER BY w.place LIMIT 100
        );
    END IF;
END $$;

-- Names in order that begin with a prefix, held or not; those in use can be inspected.
--
-- after    where the page before ended
-- most     how many names to look at
CREATE OR REPLACE FUNCTION leasehold.names(prefix text, after text, most int)
RETURNS TABLE (name text, holders int, free_in_us bigint, held_by text[], permit_limit int, permits_taken bigint,
               waiting int, waiters text[])
LANGUAGE sql STABLE AS $$
    SELECT l.name, i.*
    FROM (
        SELECT k.name FROM leasehold.locks AS k
        WHERE k.name > after COLLATE "C" AND k.name >= prefix COLLATE "C" AND starts_with(k.name, prefix)
        ORDER BY k.name LIMIT most
    ) AS l, leasehold.inspect(l.name) AS i
    ORDER BY l.name
$$;
