-- Ends whatever hold there is of locks. Answers what is known of it (see
-- describe.lua), or nil if one is free. A corrupt one is left alone.
--
-- KEYS: lock and record of each.
local answers = {}
for i = 1, #KEYS, 2 do
  local lock, record = KEYS[i], KEYS[i + 1]
  local answer = describe(redis.pcall('GET', lock), lock, record)
  if answer and answer[1] ~= 'corrupt' then
    redis.call('DEL', lock, record)
  end
  answers[#answers + 1] = answer
end
return answers
