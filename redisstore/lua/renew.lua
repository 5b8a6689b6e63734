-- Prolongs holds; never shortens one.
--
-- KEYS: the locks. ARGV: owner with a line break of each; TTL in ms, of all or of each.
-- Answers for each 1, 0 if the owner does not hold the lock, or {'failed', why}.
local answers, rest = {}, #KEYS + 1 -- here is the first TTL
local step = #ARGV > rest and 1 or 0 -- to the next

local function renew(lock, owner, ttl)
  local value = first(lock, owner)
  if value == owner then
    prolong(lock, ttl)
    return 1
  elseif type(value) ~= 'string' then
    unread(value, 'GETRANGE', lock, '0', '0')
  end
  return 0
end

for i, lock in ipairs(KEYS) do
  answers[i] = attempt(renew, lock, ARGV[i], ARGV[rest + step * (i - 1)])
end
return answers
