-- Checks for the caller's own transaction. Until that ends, nobody else is given the lock: takeover after expiry, release
-- and force-release wait for it. Renewals go on beside it.

-- Whether a lease is held under this fence. If so, it stays so until the caller's transaction ends.
--
-- lock_name  what is held
-- its_fence  the fence of the grant
CREATE OR REPLACE FUNCTION leasehold.held(lock_name text, its_fence bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    until bigint;
BEGIN
    SELECT l.ends INTO until FROM leasehold.locks AS l
    WHERE l.name = lock_name AND l.fence = its_fence AND l.id IS NOT NULL AND l.ends > leasehold.now_us()
    FOR KEY SHARE;
    IF NOT FOUND THEN
        SELECT h.ends INTO until FROM leasehold.holders AS h
        WHERE h.name = lock_name AND h.fence = its_fence AND h.ends > leasehold.now_us()
        FOR KEY SHARE;
    END IF;
    -- Once more: it may have run out while its row was locked by others.
    RETURN coalesce(until > leasehold.now_us(), false);
END $$;

-- Raises LH001 unless a lease is held under this fence, which ends the caller's transaction.
--
-- lock_name  what is held
-- its_fence  the fence of the grant
CREATE OR REPLACE FUNCTION leasehold.assert_held(lock_name text, its_fence bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF leasehold.held(lock_name, its_fence) IS NOT TRUE THEN
        RAISE 'the lock "%" is no longer held under fence %', lock_name, its_fence
        USING ERRCODE = 'LH001', HINT = 'roll back; a later holder may have written';
    END IF;
END $$;
