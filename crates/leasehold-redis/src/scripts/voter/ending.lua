-- Fragment: how a vote is taken back.

-- Takes back what the owner has. Whether it had anything, and what is under K then: '' for another kind of key.
local function take_back(K, Z, H, owner)
  local holder = try('GET', K)
  if type(holder) == 'table' then return false, '' end
  holder = without_expired(holder, K, Z, H)
  if is_held_by(holder, owner) then
    call('DEL', K)
    return true, false
  end
  if holder ~= SHARED or call('ZREM', Z, owner:sub(1, 33) .. '0') == 0 then return false, holder end
  call('HDEL', H, owner:sub(1, 33))
  if call('EXISTS', Z) == 1 then return true, holder end
  call('DEL', K)
  return true, false
end
