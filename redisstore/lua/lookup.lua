-- Answers what is known of locks (see describe.lua, and describeAll in holders.lua) and how many
-- places their queues have, or nil if one is free.
--
-- KEYS: as for acquire.lua. ARGV: the number of keys before the locks.
local lined = redis.pcall('EXISTS', queues) == 1
local answers = {}
for i = 1, #KEYS - before do
  local lock = KEYS[before + i]
  local value = redis.pcall('GET', lock)
  local words
  if holdersIn(value) then
    defineHolders()
    words = describeAll(quietly(allOf, lock, value) or {})
  end
  words = words or describe(value, lock)
  if words and lined then
    words[5] = waiting(lock)
  end
  answers[i] = words
end
return answers
