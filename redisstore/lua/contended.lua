-- The rest of acquire.lua, for locks that were not granted there: extends those that
-- their owner holds already, grants those that are free and have a queue, gives places in
-- the queue, and describes what is in the way of the others.

local function acquire(lock, owner, terms, ttl, wait, public)
  local value = redis.pcall('GET', lock)
  local token = again(value, lock, owner, ttl)
  if token then
    return token
  end
  local floor, tokens, limit = string.match(terms, '^(%d+) ?(%d*) ?(%-?%d*)$')
  local wish = {
    floor = tonumber(floor), tokens = tonumber(tokens) or 1, limit = tonumber(limit) or 0, public = public,
  }
  local set, hold = find(lock, value, owner)
  if hold then
    return hold.kept and answer(value, lock, owner, nil) or prolongHold(lock, set, owner, hold, ttl)
  elseif not set and wish.limit ~= 0 then
    holdersOf(lock, value) -- A failure concerns this request.
  end
  local queued = wait ~= '' and quietly(placeOf, lock, owner)
  if set then
    if (abstain > 0 or short) and fits(set, wish) then
      return abstain > 0 and {'abstains', abstain, unknown and 1 or 0} or {'failed', short}
    end
    local granted
    if lined then
      granted = settle(lock, set, queued and owner, tonumber(ttl))
    end
    if not granted and not set.blocked and fits(set, wish) then
      local token, why = grant(lock, owner, wish, ms + ttl, set)
      if not token then
        return (why == 'ahead' or why == 'exhausted') and {why} or {'failed', why}
      end
      granted = {'granted', token, why}
    end
    if granted then
      return granted
    end
    value = call('GET', lock)
  end
  if queued then
    extend(lock, owner, queued, tonumber((string.match(wait, '^%d+'))))
  elseif wait ~= '' and value ~= 'released:' .. redis.sha1hex(owner) then
    if wish.floor > first + maxLead then
      return {'ahead'}
    end
    queued = pcall(enter, lock, owner, wait, wish)
  end
  if queued then
    setMark(lock, value, true)
  end
  return answer(value, lock, owner, queued)
end

for i, lock in pairs(refused) do
  local more = rest + step * (i - 1)
  answers[i] = attempt(acquire, lock, ARGV[2 * i], ARGV[2 * i + 1], ARGV[more], ARGV[more + 1], ARGV[more + 2])
end
return answers
