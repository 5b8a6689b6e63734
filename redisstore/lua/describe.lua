-- Functions for the scripts that this text is put in front of.

-- recorded returns what the record says of the hold of this owner: token,
-- seconds and microseconds of its begin, holder, metadata; a line each. It
-- returns nil if the record is missing or is of another hold.
local function recorded(owner, record)
  local text = redis.pcall('GET', record)
  if type(text) == 'string' and string.sub(text, 1, #owner + 1) == owner .. '\n' then
    return string.sub(text, #owner + 2)
  end
end

-- describe says what is known of a lock with this value, without the owner:
-- {kind, ms left or -1, end in ms since 1970 or -1, record}; false if there is
-- no lock, {'corrupt'} if the value could not be read.
local function describe(value, lock, record)
  if type(value) ~= 'string' then
    return value and {'corrupt'}
  end
  local kind, text = 'foreign', recorded(value, record)
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
