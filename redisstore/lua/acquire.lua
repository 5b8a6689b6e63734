-- Takes locks that are free, and extends those that their owner holds already.
--
-- KEYS: counter and tokens ahead (see keys.go); with a restart guard its marker;
--       lock and record of each.
-- ARGV: for how many ms a guarded server abstains, or 0; owner, TTL in ms,
--       smallest token, holder and metadata of each.
-- Answers for each the token of a grant, as a number; or what is in the way
-- (see describe.lua), or {'abstains', ms}, {'corrupt'}, {'exhausted'}.
--
-- What can fail for all is done before the first write, so that an error means
-- that nothing was changed.
local call = redis.call
local counter, ahead = KEYS[1], KEYS[2]
local guard = tonumber(ARGV[1])
local greatest = 9007199254740991

local last = tonumber(call('GET', counter) or 0)
if not last then
  return redis.error_reply('HOLDFAST the counter is not a number')
end
local names = call('ZCARD', ahead)
local now = call('TIME')
local clock = now[1] * 1000000 + now[2]
local begin = '\n' .. now[1] .. '\n' .. now[2] .. '\n'
local abstain = 0
if guard > 0 then
  abstain = abstains(KEYS[3], guard, now)
end

-- again answers an owner whose first answer was lost, with the token of the
-- hold; with nil if the record is gone, so that there must be a new one.
local function again(lock, record, owner, ttl)
  local left = call('PTTL', lock)
  if left >= 0 and left < tonumber(ttl) then
    call('PEXPIRE', lock, ttl)
    call('PEXPIRE', record, ttl)
  end
  local text = recorded(owner, record)
  return text and tonumber(string.match(text, '^%d+'))
end

-- above is the token that a lock is granted when the counter says this: more
-- than that only for a floor, and for a lock that had such a token before.
local function above(said, lock, floor)
  local own = names > 0 and call('ZSCORE', ahead, lock)
  return math.max(said, tonumber(floor), own and own + 1 or 0)
end

-- written is a token as text. The format of large numbers takes longer than a
-- command; it is left for those that may not fit a server's whole numbers. The
-- tokens of a batch have the same seconds, so that these are formatted once.
local format = string.format
local whole, prefix = -1, ''
local function written(token)
  if token >= 2147483648000000 then
    return format('%.0f', token)
  end
  local micros = token % 1000000
  if token - micros ~= whole then
    whole = token - micros
    prefix = format('%d', whole / 1000000)
  end
  return format('%s%06d', prefix, micros)
end

local answers, count, arg = {}, 0, 2
local issued, said = last, math.max(last + 1, clock) -- said is the counter's next
for key = (guard > 0) and 4 or 3, #KEYS, 2 do
  local lock, record, owner, ttl, floor = KEYS[key], KEYS[key + 1], ARGV[arg], ARGV[arg + 1], ARGV[arg + 2]
  local answer, token = nil, said
  if names > 0 or floor ~= '0' then
    token = above(said, lock, floor)
  end
  if (abstain > 0 or token > greatest) and call('EXISTS', lock) == 0 then
    answer = abstain > 0 and {'abstains', abstain} or {'exhausted'}
  elseif not call('SET', lock, owner, 'NX', 'PX', ttl) then
    local value = redis.pcall('GET', lock)
    if value == owner then
      answer = again(lock, record, owner, ttl) or token > greatest and {'exhausted'}
    else
      answer = describe(value, lock, record)
    end
  end
  if not answer then
    issued, said, answer = said, said + 1, token
    local text = written(token)
    if token > issued then
      names = names + 1
      call('ZADD', ahead, text, lock)
    end
    call('SET', record, owner .. '\n' .. text .. begin .. ARGV[arg + 3], 'PX', ttl)
  end
  count, arg = count + 1, arg + 4
  answers[count] = answer
end
if issued > last then
  local text = written(issued)
  call('SET', counter, text)
  if names > 0 then -- What the counter has passed need not be remembered.
    call('ZREMRANGEBYSCORE', ahead, '-inf', text)
  end
end
return answers
