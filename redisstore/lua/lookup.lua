-- Answers what is known of locks (see describe.lua), or nil if one is free.
--
-- KEYS: the locks.
local answers = {}
for i, lock in ipairs(KEYS) do
  answers[i] = describe(redis.pcall('GET', lock), lock)
end
return answers
