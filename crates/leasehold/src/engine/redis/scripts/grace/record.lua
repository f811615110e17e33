-- Fragment for clients with a grace: a record that this server does not have may have been begun at the one before it,
-- or even done. What is there can be told. Keys, arguments and answers as begin.
local begin_now = begin
local function begin(k, a)
  if grace_ms > 0 and call('EXISTS', KEYS[k]) == 0 then
    error({ err = ('GRACE the primary is new: nothing is begun for %d ms'):format(grace_ms) })
  end
  return begin_now(k, a)
end
