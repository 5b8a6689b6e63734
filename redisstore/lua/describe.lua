-- Functions for the scripts that this text is put in front of.

-- publicOf returns what the value of a lock says to everybody: token, seconds and
-- microseconds of the begin, holder, metadata; a line each. It returns nil if a
-- stranger wrote the value.
local function publicOf(value)
  return string.match(value, '^[^\n]*\n(%d+\n%d+\n%d+\n.*)$')
end

-- holdersIn returns what the value of a lock says of holders that tolerate others (see
-- holders.lua): their generation, how many they are, how many of them are limited, the end of the last,
-- and how long their keys last. It returns nil if the lock has no such holders.
local function holdersIn(value)
  if type(value) == 'string' then
    return string.match(value, '^shared:(%d+) (%d+) (%d+) (%d+) (%d+)$')
  end
end

-- describe says what is known of a lock with this value, without the owner:
-- {kind, ms left or -1, end in ms since 1970 or -1, what is public}; false if
-- there is no lock.
local function describe(value, lock)
  if type(value) ~= 'string' then
    if not value then
      return false
    end
    value = unread(value, 'GET', lock)
  end
  local kind, text = 'foreign', publicOf(value)
  if text then
    kind = 'held'
  elseif string.sub(value, 1, 9) == 'released:' then
    kind = 'kept'
  end
  local left, ends = redis.call('PTTL', lock), redis.pcall('PEXPIRETIME', lock)
  if type(ends) ~= 'number' then -- Redis 6 does not have the command.
    local now = redis.call('TIME')
    ends = left >= 0 and now[1] * 1000 + math.floor(now[2] / 1000) + left or -1
  end
  return {kind, left, ends, text or ''}
end
