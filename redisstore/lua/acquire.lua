-- Takes locks that are free. For those that are not, refused.lua goes on, which
-- comes behind it: to define its functions takes longer than to grant a lock.
--
-- KEYS: counter and tokens ahead (see keys.go); with a restart guard its marker;
--       the locks.
-- ARGV: for how many ms a guarded server abstains, or 0; owner with a line break and
--       smallest token of each; TTL in ms, and holder and metadata, of all or of each.
-- Answers for each the token of a grant, as a number; or what is in the way
-- (see describe.lua), or {'abstains', ms}, {'exhausted'}, {'corrupt'}. If all are
-- granted, and each token is greater by one than that of the lock before, it
-- answers the first.
--
-- What can fail for all is done before the first write, so that an error means
-- that nothing was changed.
local call, format = redis.call, string.format
local counter, ahead, guard = KEYS[1], KEYS[2], tonumber(ARGV[1])
local limit = 9007199254740991 -- the greatest token to grant

local last = tonumber(call('GET', counter) or 0)
if not last then
  return redis.error_reply('HOLDFAST the counter is not a number')
end
local top = 0 -- the greatest token that is remembered, or less than any
local names = call('ZCARD', ahead)
if names > 0 then
  local last = call('ZRANGE', ahead, '-1', '-1', 'WITHSCORES')
  top = tonumber(last[2])
  call('ZSCORE', ahead, last[1]) -- If that is not allowed, it fails here.
end
local now = call('TIME')
local seconds, micros = now[1], tonumber(now[2])
local begin = '\n' .. seconds .. '\n' .. now[2] .. '\n'
local abstain = 0
if guard > 0 then
  abstain = abstains(KEYS[3], guard, now)
  limit = abstain > 0 and 0 or limit
end

-- What the counter says next is the clock; or one more than last, if that is more.
-- The text of a token is made of the clock's as long as it can be: the format of
-- large numbers takes longer than a command.
local said = seconds * 1000000 + micros
if said <= last then
  said, micros = last + 1, 1000000
end
local first, rising = said, true -- rising by one with each lock
local passed = {} -- the tokens granted that the counter has not reached, and their locks
local answers, count, refused = {}, 0, nil
local before = guard > 0 and 3 or 2 -- so many keys are before those of the locks
local rest = 2 * (#KEYS - before) + 2 -- here is the first TTL
local step = #ARGV > rest + 1 and 2 or 0 -- to the next
for key = before + 1, #KEYS do
  count = count + 1
  local lock, floor, more = KEYS[key], ARGV[2 * count + 1], rest + step * (count - 1)
  local token, text = said, nil
  if floor ~= '0' or top > 0 then
    local least = tonumber(floor)
    local own = least <= top and call('ZSCORE', ahead, lock)
    if own and own + 1 > least then
      least = own + 1
      floor = format('%.0f', least)
    end
    if least > said then
      token, text = least, floor
    end
  end
  if not text then
    text = micros < 1000000 and seconds .. format('%06d', micros) or format('%.0f', said)
  end
  if token > limit and call('EXISTS', lock) == 0 then
    rising = false
    answers[count] = abstain > 0 and {'abstains', abstain} or {'exhausted'}
  elseif call('SET', lock, ARGV[2 * count] .. text .. begin .. ARGV[more + 1], 'NX', 'PX', ARGV[more]) then
    if token > said then
      rising = false
      passed[#passed + 1] = text
      passed[#passed + 1] = lock
    end
    answers[count], said, micros = token, said + 1, micros + 1
  else
    rising, refused = false, refused or {}
    refused[count] = lock
  end
end
if said > first then
  local issued = micros <= 1000000 and seconds .. format('%06d', micros - 1) or format('%.0f', said - 1)
  call('SET', counter, issued)
  if names > 0 then -- What the counter has passed need not be remembered.
    call('ZREMRANGEBYSCORE', ahead, '(-inf', issued)
  end
end
if #passed > 0 then
  if names == 0 then
    -- A member this long has the server keep the set as a tree from the first
    -- member on, and not as a list, which takes longer with 64 members already.
    call('ZADD', ahead, '-inf', string.rep('-', 65))
  end
  call('ZADD', ahead, unpack(passed))
end
if rising then
  return first
end
if not refused then
  return answers
end
