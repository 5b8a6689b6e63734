-- The rest of acquire.lua, for locks that were not granted there: extends those that
-- their owner holds already, grants those that are free and have a queue, gives places in
-- the queue, and describes what is in the way of the others.

local function stands(lock, owner, terms, ttl, wait, public)
  local value = redis.pcall('GET', lock)
  local token = again(value, lock, owner, ttl)
  if token then
    return token
  end
  local floor, tokens = string.match(terms, '^(%d+) ?(%d*)$')
  local wish = {floor = tonumber(floor), tokens = tonumber(tokens) or 1, public = public}
  local queued = wait ~= '' and quietly(placeOf, lock, owner)
  if not value then
    if abstain > 0 then
      return {'abstains', abstain, unknown and 1 or 0}
    elseif short then
      return {'failed', short}
    end
    local holder, token, several
    if lined then
      holder, token, several = admit(lock, queued and owner, tonumber(ttl))
    end
    if not holder then
      token, several = grant(lock, owner, wish, ms + ttl)
      holder = owner
    end
    if not token then
      return (several == 'ahead' or several == 'exhausted') and {several} or {'failed', several}
    elseif holder == owner then
      return {'granted', token, several}
    end
    value = call('GET', lock)
  end
  if queued then
    extend(lock, owner, queued, tonumber((string.match(wait, '^%d+'))))
  elseif wait ~= '' and value ~= 'released:' .. redis.sha1hex(owner) then
    if wish.floor > first + lead then
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
  answers[i] = attempt(stands, lock, ARGV[2 * i], ARGV[2 * i + 1], ARGV[more], ARGV[more + 1], ARGV[more + 2])
end
return answers
