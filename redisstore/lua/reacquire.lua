-- A function for the scripts that this text is put in front of.

-- again answers an owner whose first answer was lost, with the token of the hold;
-- it returns nil if the lock has another owner.
local function again(value, lock, owner, ttl)
  local token = type(value) == 'string' and string.sub(value, 1, #owner) == owner
      and string.match(value, '^(%d+)\n', #owner + 1)
  if not token then
    return nil
  end
  prolong(lock, ttl)
  return tonumber(token)
end
