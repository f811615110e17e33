-- Removes a few rows of free locks that nobody has taken for a day. Whoever adds a row runs this, so there are
-- never many. A fence is the wall clock at its grant or later: a new one is higher without the row as well,
-- unless the wall clock goes back by more than that day.
-- ?1 highest fence to remove · ?2 boot · ?3 now
DELETE FROM lock
WHERE name IN (
    SELECT name
    FROM lock INDEXED BY lock_by_fence
    WHERE fence <= ?1
      AND (boot <> ?2 OR closed_until <= ?3)
      AND NOT EXISTS (SELECT 1 FROM waiter AS w WHERE w.name = lock.name)
    LIMIT 4
)
