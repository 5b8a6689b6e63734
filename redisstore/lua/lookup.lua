-- Answers {places, the holds and keeps}.
-- queue.lua
local function lookup(lock, queue, entries)
  local s = load(lock, queue, entries)
  settle(s)
  return {waiting(s), describeAll(s, holds(s, 1000000))}
end

return run(lookup, 0)
