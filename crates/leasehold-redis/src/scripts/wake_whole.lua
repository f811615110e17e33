-- Fragment: wake-ups on one server, where every channel reaches everybody.
local PUBLISH = 'PUBLISH'
