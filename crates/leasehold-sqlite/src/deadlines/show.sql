-- Makes a claimed deadline due after a while, and hides it until then. No row changed: the receipt is void.
-- ?1 pool · ?2 id · ?3 receipt · ?4 due · ?5 boot · ?6 due, by its clock · ?7 1 if it is given back: its attempt does not
-- count, and its receipt is void, so that the same again changes nothing
UPDATE deadline
SET due = ?4, boot = ?5, hidden_until = ?6, attempts = attempts - ?7, receipt = CASE ?7 WHEN 0 THEN receipt END
WHERE pool = ?1 AND id = ?2 AND receipt = ?3
