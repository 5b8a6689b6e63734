-- A function for the scripts that this text is put in front of.

-- unread returns '' in place of a value that a command could not read because the
-- key is of another type: another kind of client holds the lock. Any other failure,
-- as of a user that may not read, ends the script.
local function unread(failure, ...)
  if not string.find(failure.err, '^%-?WRONGTYPE ') then
    redis.call(...)
  end
  return ''
end
