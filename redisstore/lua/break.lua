-- Ends whatever hold there is of locks, or only the hold with a token. Answers what is
-- known of it (see describe.lua), or nil if a lock is free or has another token or none,
-- or {'type', type} for a key that is no string: it may be data of an application, and is
-- left alone.
--
-- KEYS and the first argument: as for acquire.lua, or only the locks and 0. ARGV: token with a line
-- break of each, or an empty string for any hold.
local answers = {}
for i = 1, #KEYS - before do
  local lock, token = KEYS[before + i], ARGV[i + 1]
  local value = redis.pcall('GET', lock)
  local words = describe(value, lock)
  if words and string.sub(words[4], 1, #token) ~= token then
    words = false
  elseif words and type(value) == 'string' then
    free(lock)
  elseif words then
    local kind = redis.pcall('TYPE', lock)
    words = {'type', kind.ok or 'key of another type'}
  elseif not alone then
    quietly(admit, lock)
  end
  answers[i] = words
end
return answers
