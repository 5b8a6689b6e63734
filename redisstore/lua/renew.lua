-- Prolongs holds and places; never shortens one.
--
-- KEYS and the first argument: as for acquire.lua. ARGV: owner with a line
-- break of each, and with the token of the hold and a line break if it has to be that; TTL in ms,
-- of all or of each. Answers for each 1; 2 for a place; 0 if the owner has neither; or {'failed', why}.
local function renew(lock, arg, ttl)
  local owner, token = string.match(arg, '^([^\n]*\n)(%d*)')
  local value = read(lock)
  local held, marked = tokenOf(value, owner)
  if held and (token == '' or token == held) then
    prolong(lock, ttl)
    if marked and redis.pcall('EXISTS', (keysOf(lock))) == 0 then
      setMark(lock, value, false)
    end
    return 1
  end
  local set, hold = find(lock, value, owner)
  if hold and not hold.kept and (token == '' or token == format('%.0f', hold.token)) then
    prolongHold(lock, set, owner, hold, ttl)
    quietly(settle, lock, set)
    return 1
  end
  local place = token == '' and placeOf(lock, owner)
  if place then
    extend(lock, owner, place, tonumber(ttl))
    setMark(lock, value, true)
  end
  if set and quietly(settle, lock, set, place and owner, tonumber(ttl)) then
    return 1
  end
  return place and 2 or 0
end

local answers, rest = {}, #KEYS - before + 2 -- here is the first TTL
local step = #ARGV > rest and 1 or 0 -- to the next
for i = 1, #KEYS - before do
  answers[i] = attempt(renew, KEYS[before + i], ARGV[i + 1], ARGV[rest + step * (i - 1)])
end
return answers
