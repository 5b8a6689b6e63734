-- Ends whatever hold there is of locks, or only the hold with a token. Answers what is
-- known of it (see describe.lua), or nil if a lock is free or has another token or none,
-- or {'type', type} for a key that is no string: it may be data of an application, and is
-- left alone.
--
-- KEYS: the locks. ARGV: token with a line break of each, or an empty string for any hold.
local answers = {}
for i, lock in ipairs(KEYS) do
  local value = redis.pcall('GET', lock)
  local answer = describe(value, lock)
  if answer and string.sub(answer[4], 1, #ARGV[i]) ~= ARGV[i] then
    answer = false
  elseif answer and type(value) == 'string' then
    redis.call('DEL', lock)
  elseif answer then
    local kind = redis.pcall('TYPE', lock)
    answer = {'type', kind.ok or 'key of another type'}
  end
  answers[i] = answer
end
return answers
