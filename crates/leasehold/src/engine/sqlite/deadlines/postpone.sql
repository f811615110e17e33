-- Makes a claimed deadline due at another time. No row changed: the receipt is void.
-- ?1 pool · ?2 id · ?3 receipt · ?4 due
UPDATE deadline
SET due = ?4, boot = NULL, hidden_until = NULL
WHERE pool = ?1 AND id = ?2 AND receipt = ?3
