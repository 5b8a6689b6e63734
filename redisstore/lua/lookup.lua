-- Answers {places, the holds and keeps}.
local guard, replicas = match(ARGV[1], '^(%d+) (%d+)')

-- include queue.lua

local function verb(lock, queue, entries)
  local s = load(lock, queue, entries)
  s:settle()
  return {s:waiting(), s:describe(s:holds(1000000))}
end
