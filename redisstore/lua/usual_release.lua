-- The usual case of release.lua, which comes behind it and owner.lua: locks that
-- their owners hold. Answers 1 if all holds have ended; else the rest goes on, for the others.
local others
for i, lock in ipairs(KEYS) do
  local owner = ARGV[2 * i - 1]
  local value = first(lock, owner)
  if value == owner and ARGV[2 * i] == '0' then
    redis.call('DEL', lock)
  else
    others = others or {}
    others[i] = value
  end
end
if not others then
  return 1
end
