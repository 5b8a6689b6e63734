-- The rest of acquire.lua, for locks that were not free: extends those that their
-- owner holds already, and tells what is in the way of the others.

-- again answers an owner whose first answer was lost, with the token of the
-- hold; with nil if the lock is not his.
local function again(value, lock, owner, ttl)
  local token = type(value) == 'string' and string.sub(value, 1, #owner) == owner
      and string.match(value, '^(%d+)\n', #owner + 1)
  if not token then
    return nil
  end
  local left = call('PTTL', lock)
  if left >= 0 and left < tonumber(ttl) then
    call('PEXPIRE', lock, ttl)
  end
  return tonumber(token)
end

for i, lock in pairs(refused) do
  local value = redis.pcall('GET', lock)
  answers[i] = again(value, lock, ARGV[2 * i], ARGV[rest + step * (i - 1)]) or describe(value, lock)
end
return answers
