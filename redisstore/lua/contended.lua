-- The rest of acquire.lua, for locks that were not granted: extends those that
-- their owner holds already, and describes what is in the way of the others.

local function stands(lock, owner, floor, ttl)
  local value = redis.pcall('GET', lock)
  return again(value, lock, owner, ttl) or describe(value, lock)
      or abstain > 0 and {'abstains', abstain, unknown and 1 or 0}
      or short and {'failed', short} or floor > first + lead and {'ahead'} or {'exhausted'}
end

for i, lock in pairs(refused) do
  answers[i] = attempt(stands, lock, ARGV[2 * i], tonumber((string.match(ARGV[2 * i + 1], '^%d+'))), ARGV[rest + step * (i - 1)])
end
return answers
