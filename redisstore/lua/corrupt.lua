-- A function for the scripts that this text is put in front of.

-- corrupt answers for a lock that a command could not read: since its key is of
-- another type. Any other failure, of a user who may not read for instance, ends
-- the script.
local function corrupt(failure, ...)
  if not string.find(failure.err, 'WRONGTYPE', 1, true) then
    redis.call(...)
  end
  return {'corrupt'}
end
