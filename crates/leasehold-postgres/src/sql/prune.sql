-- Forgets names that nobody has used for long: an operator or a timer calls it, no client does.

-- Removes rows of free names. Their highest fence is kept, so that no fence of theirs comes again, whatever clocks do.
--
-- unused_for  how long nobody took them; at least a day, in which the number of permits is still known
-- most        how many at most, in one transaction
-- returns     how many
CREATE OR REPLACE FUNCTION leasehold.prune(unused_for interval DEFAULT '7 days', most int DEFAULT 10000) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    seconds numeric := extract(epoch FROM greatest(unused_for, interval '1 day'));
    latest  bigint := leasehold.now_us() - (seconds * 1000000)::bigint;
    gone    text[];
    highest bigint;
BEGIN
    -- What others decide about, or have checked, is left alone.
    gone := ARRAY(
        SELECT l.name FROM leasehold.locks AS l
        WHERE l.fence <= latest AND l.free_since <= latest AND (l.id IS NULL OR l.ends <= latest)
          AND NOT EXISTS (SELECT FROM leasehold.holders AS h WHERE h.name = l.name)
          AND NOT EXISTS (SELECT FROM leasehold.waiters AS w WHERE w.name = l.name)
        LIMIT most FOR UPDATE SKIP LOCKED
    );
    -- Once more, with the rows locked.
    WITH deleted AS (
        DELETE FROM leasehold.locks AS l
        WHERE l.name = ANY (gone)
          AND NOT EXISTS (SELECT FROM leasehold.holders AS h WHERE h.name = l.name)
          AND NOT EXISTS (SELECT FROM leasehold.waiters AS w WHERE w.name = l.name)
        RETURNING l.fence
    )
    SELECT max(fence), count(*) INTO highest, most FROM deleted;
    UPDATE leasehold.fence_floor SET fence = highest WHERE fence < highest;
    RETURN most;
END $$;
