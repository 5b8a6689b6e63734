-- Prolongs holds; never shortens one.
--
-- KEYS: lock and record of each. ARGV: owner and TTL in ms of each.
-- Answers for each 1, 0 if the owner does not hold the lock, or {'corrupt'}.
local call = redis.call
local answers = {}
for i = 1, #KEYS, 2 do
  local lock, owner, ttl = KEYS[i], ARGV[i], ARGV[i + 1]
  local value = redis.pcall('GET', lock)
  local answer = 0
  if value == owner then
    local left = call('PTTL', lock)
    if left >= 0 and left < tonumber(ttl) then
      call('PEXPIRE', lock, ttl)
      call('PEXPIRE', KEYS[i + 1], ttl)
    end
    answer = 1
  elseif value and type(value) ~= 'string' then
    answer = {'corrupt'}
  end
  answers[#answers + 1] = answer
end
return answers
