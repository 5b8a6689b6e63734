-- Answers {places, the holds and keeps}.

-- include queue.lua

local function verb(lock, queue, entries)
  local s = load(lock, queue, entries)
  s:settle()
  return {s:waiting(), s:describe(s:holds(1000000))}
end
