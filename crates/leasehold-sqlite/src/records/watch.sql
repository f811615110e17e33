-- Enters a watcher, unless there are too many.
-- ?1 key · ?2 owner id · ?3 boot · ?4 asks again before · ?5 wake · ?6 most watchers of a key
INSERT INTO watcher (key, owner_id, boot, live_until, wake)
SELECT ?1, ?2, ?3, ?4, ?5
WHERE (SELECT count(*) FROM watcher WHERE key = ?1) < ?6
