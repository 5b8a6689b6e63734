-- Answers {places, the holds and keeps}.
local function lookup(s)
  settled(s)
  return {waiting(s), describeAll(s, holds(s, 1000000))}
end

return run(lookup, 0)
