-- The usual case of release.lua, which comes behind it and owner.lua: locks that
-- their owners hold. Answers 1 if all holds have ended; else the rest goes on, for the others.
local others
local held = {}
local rest = #KEYS - before + 2 -- here is the first time to keep a name
local step = #ARGV > rest and 1 or 0 -- to the next
for i = 1, #KEYS - before do
  local lock, owner = KEYS[before + i], ARGV[i + 1]
  local value = first(lock, owner)
  if value == owner and ARGV[rest + step * (i - 1)] == '0' then
    held[#held + 1] = lock
  else
    others = others or {}
    others[i] = value
  end
end
if #held > 0 then
  redis.call('DEL', unpack(held))
end
if not others then
  return 1
end
