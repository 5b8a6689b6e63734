-- Functions for the scripts that this text is put in front of.

-- read returns the value of a lock: false if it is free, and no string for a key of another type.
local function read(lock)
  local value = redis.pcall('GET', lock)
  if type(value) == 'table' then
    unread(value, 'GET', lock)
  end
  return value
end

-- tokenOf returns the token, as a text, of the hold that an owner has by the value of a lock, and
-- whether it is marked; nil if the owner does not hold it.
local function tokenOf(value, owner)
  if type(value) ~= 'string' then
    return nil
  end
  local size = #owner
  if string.sub(value, 1, size) == owner then
    return string.match(value, '^(%d+)\n', size + 1)
  elseif string.sub(value, 1, size + 1) == string.sub(owner, 1, -2) .. '\31\n' then
    return string.match(value, '^(%d+)\n', size + 2), true
  end
end

-- again answers an owner whose first answer was lost, or who was admitted, with the token of the
-- hold; it returns nil if the lock has another owner.
local function again(value, lock, owner, ttl)
  local token = tokenOf(value, owner)
  if token then
    prolong(lock, ttl)
    return tonumber(token)
  end
end
