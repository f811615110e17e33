-- Hides a deadline that was claimed.
-- ?1 place · ?2 visible again at · ?3 receipt · ?4 boot · ?5 visible again at, by its clock
UPDATE deadline
SET due = ?2, attempts = attempts + 1, receipt = ?3, boot = ?4, hidden_until = ?5
WHERE place = ?1
