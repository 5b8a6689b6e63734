-- Ends whatever hold there is of locks. Answers what is known of it (see
-- describe.lua), or nil if one is free. A corrupt one is left alone.
--
-- KEYS: the locks.
local answers = {}
for i, lock in ipairs(KEYS) do
  local answer = describe(redis.pcall('GET', lock), lock)
  if answer and answer[1] ~= 'corrupt' then
    redis.call('DEL', lock)
  end
  answers[i] = answer
end
return answers
