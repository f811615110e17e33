-- How many names are held and how many attempts wait.
-- ?1 boot · ?2 now
SELECT (SELECT count(*) FROM lock WHERE boot = ?1 AND closed_until > ?2),
       (SELECT count(*) FROM waiter WHERE boot = ?1 AND live_until > ?2)
