-- Takes locks that are free, and extends those that their owner holds already.
--
-- KEYS: counter; with a restart guard its marker; lock and record of each.
-- ARGV: for how many ms a guarded server abstains, or 0; owner, TTL in ms,
--       smallest token, holder and metadata of each.
-- Answers for each the token of a grant, as a number; or what is in the way
-- (see describe.lua), or {'abstains', ms}, {'corrupt'}, {'exhausted'}.
--
-- What can fail for all is done before the first write, so that an error means
-- that nothing was changed.
local call = redis.call
local guard = tonumber(ARGV[1])

local last = tonumber(call('GET', KEYS[1]) or 0)
if not last then
  return redis.error_reply('HOLDFAST the counter is not a number')
end
local now = call('TIME')
local clock = now[1] * 1000000 + now[2]
local begin = '\n' .. now[1] .. '\n' .. now[2] .. '\n'
local abstain = 0
if guard > 0 then
  abstain = abstains(KEYS[2], guard, now)
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

local answers, issued = {}, last
local arg = 2
for key = (guard > 0) and 3 or 2, #KEYS, 2 do
  local lock, record, owner, ttl = KEYS[key], KEYS[key + 1], ARGV[arg], ARGV[arg + 1]
  local token = math.max(issued + 1, clock, tonumber(ARGV[arg + 2]))
  local answer
  if token > 9007199254740991 then
    answer = {'exhausted'}
  elseif abstain > 0 and call('EXISTS', lock) == 0 then
    answer = {'abstains', abstain}
  elseif not call('SET', lock, owner, 'NX', 'PX', ttl) then
    local value = redis.pcall('GET', lock)
    if value == owner then
      answer = again(lock, record, owner, ttl)
    else
      answer = describe(value, lock, record)
    end
  end
  if not answer then
    issued, answer = token, token
    call('SET', record, owner .. string.format('\n%.0f', token) .. begin .. ARGV[arg + 3], 'PX', ttl)
  end
  answers[#answers + 1] = answer
  arg = arg + 4
end
if issued > last then
  call('SET', KEYS[1], string.format('%.0f', issued))
end
return answers
