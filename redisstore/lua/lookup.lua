-- Answers what is known of locks (see describe.lua), or nil if one is free.
--
-- KEYS: lock and record of each.
local answers = {}
for i = 1, #KEYS, 2 do
  answers[#answers + 1] = describe(redis.pcall('GET', KEYS[i]), KEYS[i], KEYS[i + 1])
end
return answers
