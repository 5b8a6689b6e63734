-- Prolongs holds; never shortens one.
--
-- KEYS: the locks. ARGV: owner with a line break of each; TTL in ms, of all or of each.
-- Answers for each 1, 0 if the owner does not hold the lock, or {'corrupt'}.
local call = redis.call
local answers, rest = {}, #KEYS + 1 -- here is the first TTL
local step = #ARGV > rest and 1 or 0 -- to the next
for i, lock in ipairs(KEYS) do
  local owner, ttl = ARGV[i], ARGV[rest + step * (i - 1)]
  local value, answer = first(lock, owner), 0
  if value == owner then
    local left = call('PTTL', lock)
    if left >= 0 and left < tonumber(ttl) then
      call('PEXPIRE', lock, ttl)
    end
    answer = 1
  elseif type(value) ~= 'string' then
    answer = corrupt(value, 'GETRANGE', lock, '0', '0')
  end
  answers[i] = answer
end
return answers
