-- Makes a claimed deadline due after a while, and hides it until then. No row changed: the receipt is void.
-- ?1 pool · ?2 id · ?3 receipt · ?4 due · ?5 boot · ?6 due, by its clock
UPDATE deadline
SET due = ?4, boot = ?5, hidden_until = ?6
WHERE pool = ?1 AND id = ?2 AND receipt = ?3
