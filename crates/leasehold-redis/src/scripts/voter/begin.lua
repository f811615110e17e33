-- Fragment: what the scripts of a voter use besides. ARGV 1 is how long F is kept in ms.
local keep = ARGV[1]

-- Whether what is under K is the owner's: its id decides, all of it and nothing else.
local function is_held_by(found, owner)
  return type(found) == 'string' and found:sub(1, 33) == owner:sub(1, 33)
end

-- The text of K: the owner value with the fence behind its id.
local function held_text(owner, fence)
  return owner:sub(1, 33) .. fence .. owner:sub(33)
end

-- The highest fence of a name, as text; nil if it has none.
local function last_fence(F)
  return (call('GET', F) or ''):match('^%d+')
end
