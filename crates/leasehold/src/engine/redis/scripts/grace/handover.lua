-- Fragment for clients with a grace: until it is over nobody is handed anything, and those who wait keep their places.
local hand_over_now = hand_over
local function hand_over(K, F, W, S, first)
  if grace_ms > 0 then return false end
  return hand_over_now(K, F, W, S, first)
end
