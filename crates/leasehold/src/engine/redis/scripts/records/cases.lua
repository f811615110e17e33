-- Fragment: the operations on records by their letters, and how many keys and arguments each has, its letter included.
return {
  B = begin,
  S = settle,
  U = settle_unanswered,
  O = settle_alone,
  W = renew_record,
  V = renew_record_alone,
  X = remove,
  L = look,
}, {
  B = { 4, 5 },
  S = { 3, 5 },
  U = { 4, 6 },
  O = { 1, 4 },
  W = { 2, 3 },
  V = { 1, 3 },
  X = { 2, 1 },
  L = { 1, 1 },
}
