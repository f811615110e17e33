-- Fragment: what `cases.lua` runs on records: by its letter each operation, how many keys it has, and how many arguments, the
-- letter included. `settle_unanswered` settles with a tombstone.
local CASES = {
  b = { begin, 4, 5 },
  s = { settle, 3, 5 },
  t = { settle_unanswered, 4, 6 },
  r = { renew, 1, 3 },
  x = { remove, 2, 1 },
  l = { look, 1, 1 },
}
