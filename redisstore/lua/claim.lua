-- Recognizes holds and places of their owners, and makes neither.
--
-- KEYS and the first argument: as for acquire.lua. ARGV: owner with a line break of each; TTL in ms
-- and how long a place lasts in ms, of all or of each. Answers for each what acquire.lua answers.
local function claim(lock, owner, ttl, wait)
  local value = redis.pcall('GET', lock)
  local token = again(value, lock, owner, ttl)
  if token then
    return token
  end
  local set, hold = find(lock, value, owner)
  if hold and not hold.kept then
    return prolongHold(lock, set, owner, hold, ttl)
  end
  local place = placeOf(lock, owner)
  if place then
    extend(lock, owner, place, tonumber(wait))
  end
  if set then
    local granted, why = settle(lock, set, place and owner, tonumber(ttl))
    if granted then
      return granted
    elseif why then
      return {'failed', why}
    elseif not value or place and fits(set, place) then
      if abstain > 0 then
        return {'abstains', abstain, unknown and 1 or 0}
      elseif short then
        return {'failed', short}
      end
    end
    value = call('GET', lock)
  end
  if value and place then
    setMark(lock, value, true)
  end
  return answer(value, lock, owner, place)
end

local answers, rest = {}, #KEYS - before + 2 -- here is the first TTL
local step = #ARGV > rest + 1 and 2 or 0 -- to the next
for i = 1, #KEYS - before do
  local more = rest + step * (i - 1)
  answers[i] = attempt(claim, KEYS[before + i], ARGV[i + 1], ARGV[more], ARGV[more + 1])
end
return answers
