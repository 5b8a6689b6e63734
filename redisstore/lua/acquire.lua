-- Takes locks that are free, and extends those that their owner holds already.
--
-- KEYS: counter and tokens ahead (see keys.go); with a restart guard its marker;
--       the locks.
-- ARGV: for how many ms a guarded server abstains, or 0; whether there are smallest
--       tokens, 1 or 0; owner with a line break, TTL in ms, smallest token, holder
--       and metadata of each.
-- Answers for each the token of a grant, as a number; or what is in the way
-- (see describe.lua), or {'abstains', ms}, {'corrupt'}, {'exhausted'}.
--
-- What can fail for all is done before the first write, so that an error means
-- that nothing was changed.
local call = redis.call
local counter, ahead = KEYS[1], KEYS[2]
local guard = tonumber(ARGV[1])
local greatest = 9007199254740991

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

if refused then -- by usual_acquire.lua
  local answers, token = {}, clock
  for key = 3, #KEYS do
    if refused[key] then
      local lock, arg = KEYS[key], 4 * key - 9
      local value = redis.pcall('GET', lock)
      answers[key - 2] = again(value, lock, ARGV[arg], ARGV[arg + 1]) or describe(value, lock)
    else
      answers[key - 2], token = token, token + 1
    end
  end
  return answers
end

local last = tonumber(call('GET', counter) or 0)
if not last then
  return redis.error_reply('HOLDFAST the counter is not a number')
end
local names = call('ZCARD', ahead)
local top = 0 -- the greatest token that is remembered
if names > 0 then
  local last = call('ZRANGE', ahead, '-1', '-1', 'WITHSCORES')
  top = tonumber(last[2])
  call('ZSCORE', ahead, last[1]) -- If that is not allowed, it fails here.
end
local now = call('TIME')
clock = now[1] * 1000000 + now[2]
local begin = '\n' .. now[1] .. '\n' .. now[2] .. '\n'
local abstain = 0
if guard > 0 then
  abstain = abstains(KEYS[3], guard, now)
end

-- above is the token that a lock is granted when the counter says this: more
-- than that only for a floor, and for a lock that had such a token before.
local function above(said, lock, floor)
  local own = floor <= top and call('ZSCORE', ahead, lock)
  return math.max(said, floor, own and own + 1 or 0)
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

local answers, count, arg = {}, 0, 3
local issued, said = last, math.max(last + 1, clock) -- said is the counter's next
local passed = {} -- the tokens granted that the counter has not reached, and their locks
for key = (guard > 0) and 4 or 3, #KEYS do
  local lock, owner, ttl, floor = KEYS[key], ARGV[arg], ARGV[arg + 1], ARGV[arg + 2]
  local answer, token = nil, said
  if names > 0 or floor ~= '0' then
    token = above(said, lock, tonumber(floor))
  end
  local text = written(token)
  if (abstain > 0 or token > greatest) and call('EXISTS', lock) == 0 then
    answer = abstain > 0 and {'abstains', abstain} or {'exhausted'}
  elseif not call('SET', lock, owner .. text .. begin .. ARGV[arg + 3], 'NX', 'PX', ttl) then
    local value = redis.pcall('GET', lock)
    answer = again(value, lock, owner, ttl) or describe(value, lock)
  else
    issued, said, answer = said, said + 1, token
    if token > issued then
      passed[#passed + 1] = text
      passed[#passed + 1] = lock
    end
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
if #passed > 0 then
  call('ZADD', ahead, unpack(passed))
end
return answers
