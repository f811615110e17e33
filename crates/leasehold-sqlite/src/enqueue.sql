-- Enters the queue, or is seen in it again: the place and the time limit stay those of the first time.
-- ?1 name · ?2 owner · ?3 boot · ?4 arrived · ?5 gives up · ?6 live until · ?7 turn · ?8 wake · ?9 mode
INSERT INTO waiter (name, owner, boot, arrived, give_up, live_until, turn, wake, mode)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
ON CONFLICT (name, owner) DO UPDATE
SET live_until = excluded.live_until, turn = excluded.turn
