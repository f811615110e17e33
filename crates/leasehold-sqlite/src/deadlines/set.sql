-- Sets a deadline, or replaces the one of that id: a claim of it is void.
-- ?1 pool · ?2 id · ?3 bucket · ?4 due · ?5 context
INSERT INTO deadline (pool, id, bucket, due, attempts, context)
VALUES (?1, ?2, ?3, ?4, 0, ?5)
ON CONFLICT (pool, id) DO UPDATE
SET bucket = excluded.bucket, due = excluded.due, attempts = 0, receipt = NULL, boot = NULL, hidden_until = NULL,
    context = excluded.context
