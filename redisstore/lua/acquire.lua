-- Takes locks that are free. contended.lua follows it and handles locks that are held, and shared
-- and limited holds. It is apart since defining its functions takes longer than granting a lock.
--
-- KEYS: counter, tokens ahead and sign of queues (see keys.go); with a restart guard its
--       marker; the locks.
-- ARGV: how many keys are before the locks, and behind it, unless it is not needed: for how many ms
--       a guarded server abstains or 0, whether it keeps the name of a former history for
--       that long (see guard.lua), and how many replicas are to confirm; owner with a line
--       break and smallest token of each, with a space and how many tokens if several, and for a
--       hold that tolerates others with its limit; TTL in
--       ms, how to queue (see enter in queue.lua) or nothing, and holder and metadata, of all
--       or of each.
-- Answers for each the token of a grant, as a number, or {'granted', token, how many} if
-- there are several; or what is in the way
-- (see answer in queue.lua), or {'abstains', ms, 1 to have the question answered},
-- {'ahead'}, {'exhausted'}, {'failed', why}.
--
-- What can fail for all is done before the first write, or undoes what was granted
-- if it fails, so that an error means that nothing was changed.
local call, format = redis.call, string.format
local counter, ahead, queues, guard, replicas, kept = KEYS[1], KEYS[2], KEYS[3], 0, 0, nil
local before = tonumber(ARGV[1]) -- so many keys are before those of the locks
if not before then
  before, guard, kept, replicas = string.match(ARGV[1], '^(%d) (%d+) (%S+) (%d+)$')
  before, guard, replicas = tonumber(before), tonumber(guard), tonumber(replicas)
end
local maxToken = 9007199254740991 -- driver.MaxToken, or 0 if nothing may be granted
local maxLead = 86400000000 -- how far above the clock a floor may be (driver.MaxLead)
local maxTokensLead = 86400000000 -- how far ahead the last of several may be (driver.MaxTokensLead)

local last = tonumber(call('GET', counter) or 0)
if not last then
  return redis.error_reply('HOLDFAST the counter is not a number')
end
local top = 0 -- the greatest token that is remembered, or less than any
local names, lined = 0, nil -- lined has the locks that have queues
if redis.pcall('EXISTS', ahead, queues) ~= 0 then -- Without the right to EXISTS, queues are ignored.
  names = call('ZCARD', ahead)
  if redis.pcall('EXISTS', queues) == 1 then
    lined = {}
    local base = string.sub(counter, 1, -8)
    for key = before + 1, #KEYS do
      local lock = KEYS[key]
      lined[lock] = redis.pcall('EXISTS', base .. 'queue\31' .. lock) ~= 0
    end
  end
end
if names > 0 then
  local last = call('ZRANGE', ahead, '-1', '-1', 'WITHSCORES')
  top = tonumber(last[2])
  call('ZSCORE', ahead, last[1]) -- If that is not allowed, it fails here.
end
local now = call('TIME')
local seconds, micros = now[1], tonumber(now[2])
local begin = '\n' .. seconds .. '\n' .. now[2] .. '\n'
local abstain, unknown = 0, false
if guard > 0 then
  abstain, unknown = abstains(KEYS[4], guard, kept, now)
  if not abstain then
    return redis.error_reply('READONLY a restart guard is of use on a master only')
  end
  maxToken = abstain > 0 and 0 or maxToken
end
local short -- why too few replicas would confirm a grant: none is made, and nobody sees one
if replicas > 0 then
  short = missing(replicas)
  maxToken = short and 0 or maxToken
end

-- said is the next token of the counter: the clock, or last + 1 if that is greater.
-- The text of a token is made of the clock's as long as it can be: the format of
-- large numbers takes longer than a command.
local said = seconds * 1000000 + micros
local clock = said
if said <= last then
  said, micros = last + 1, 1000000
end
local first = said
local passed = {} -- the tokens granted that the counter has not reached, and their locks
local answers, count, refused = {}, 0, nil
local rest = 2 * (#KEYS - before) + 2 -- here is the first TTL
local step = #ARGV > rest + 2 and 3 or 0 -- to the next
for key = before + 1, #KEYS do
  count = count + 1
  local lock, floor, more = KEYS[key], ARGV[2 * count + 1], rest + step * (count - 1)
  local token, text, far, several, tolerant = said, nil, false, 1, nil
  if floor ~= '0' or top > 0 then
    local least = tonumber(floor)
    if not least then
      floor, several, tolerant = string.match(floor, '^(%d+) (%d+)( ?)')
      least, several = tonumber(floor), tonumber(several)
    end
    local base = least > clock and least or clock
    far = least > first + maxLead or tolerant == ' '
    local own = top > 0 and least <= top and call('ZSCORE', ahead, lock)
    if own and own + 1 > least then
      least = own + 1
      floor = format('%.0f', least)
    end
    if least > said then
      token, text = least, floor
    end
    if several > 1 and token + several - 1 > math.min(base + maxTokensLead, maxToken) then
      several = 1
    end
  end
  if not text then
    text = micros < 1000000 and seconds .. format('%06d', micros) or format('%.0f', said)
  end
  if token <= maxToken and not far and not (lined and lined[lock])
      and call('SET', lock, ARGV[2 * count] .. text .. begin .. ARGV[more + 2], 'NX', 'PX', ARGV[more]) then
    local final = token + several - 1 -- which is not in the counter if it is above the first
    if final > said then
      if names == 0 and #passed == 0 then
        -- A member this long has the server keep the set as a tree from the first
        -- member on, and not as a list, which takes longer with 64 members already.
        passed = {'-inf', string.rep('-', 65)}
      end
      passed[#passed + 1] = several > 1 and format('%.0f', final) or text
      passed[#passed + 1] = lock
    end
    answers[count], said, micros = several > 1 and {'granted', token, several} or token, said + 1, micros + 1
  else
    refused = refused or {}
    refused[count] = lock
  end
end
local reply -- of the last command that may fail where SET did not
if said > first then
  local issued = micros <= 1000000 and seconds .. format('%06d', micros - 1) or format('%.0f', said - 1)
  call('SET', counter, issued)
  if names > 0 then -- What the counter has passed need not be remembered.
    reply = redis.pcall('ZREMRANGEBYSCORE', ahead, '(-inf', issued)
  end
end
if #passed > 0 and type(reply) ~= 'table' then
  reply = redis.pcall('ZADD', ahead, unpack(passed))
end
if reply and type(reply) == 'table' then
  for i = 1, count do
    local undone = answers[i] and redis.pcall('DEL', KEYS[before + i])
    if type(undone) == 'table' then
      return redis.error_reply('PARTIAL ' .. undone.err)
    end
  end
  return reply
end
if not refused then
  return answers
end
