-- A function for the scripts that this text is put in front of.

-- first reads as much of a lock's value as a first line
-- with this owner has, with its line break, or with the token on the second line, too: a value may
-- have much metadata behind.
-- It returns '' for a lock that is free, and no string for a key of another type.
local size, last = 0, '0'
local function first(lock, owner)
  if #owner ~= size then
    size, last = #owner, string.format('%d', #owner - 1)
  end
  return redis.pcall('GETRANGE', lock, '0', last)
end
