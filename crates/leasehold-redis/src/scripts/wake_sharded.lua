-- Fragment: wake-ups in a cluster, on channels that lie in the slot of the lock, thus on this very node.
local PUBLISH = 'SPUBLISH'
