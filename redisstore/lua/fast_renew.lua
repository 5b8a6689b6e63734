-- The usual case of renew.lua, which comes behind it, owner.lua and prolong.lua: locks that
-- their owners hold. Answers 1 if all have been prolonged; else the rest goes on, for the others.
local others
local rest = #KEYS - before + 2 -- here is the first TTL
local step = #ARGV > rest and 1 or 0 -- to the next
for i = 1, #KEYS - before do
  local lock, owner = KEYS[before + i], ARGV[i + 1]
  local value = first(lock, owner)
  if value == owner then
    prolong(lock, ARGV[rest + step * (i - 1)])
  else
    others = others or {}
    others[i] = value
  end
end
if not others then
  return 1
end
