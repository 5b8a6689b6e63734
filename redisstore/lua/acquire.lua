-- Makes entries. What all have in common: TTL and place in ms, limit, tokens, and holder and metadata.
-- Of each: owner, floor. Answers the token of a hold; or {what, token, what is in the way}.
local ahead, ttl, place, limit, tokens, public = KEYS[2], match(common, '^(%d+) (%d+) (%d+) (%d+) (.*)$')
readClock()
local rest = tokens .. ' ' .. channel .. '\n' .. now[1] .. '\n' .. now[2] .. '\n' .. public
ttl, place, limit, tokens = tonumber(ttl), tonumber(place), tonumber(limit), tonumber(tokens)
local heldEnds = format('%d', ms + ttl)
local plain = ARGV[1] == '0' and limit == 1 -- A lock that has nothing can be granted at once.
local allFree = plain and call('EXISTS', unpack(KEYS, 2)) == 0 -- as nearly always
local nextToken, tokensAhead

local function verb(lock, queue, entries, owner, floor)
  local s, free = nil, true
  floor = tonumber(floor)
  if not allFree and not (plain and call('EXISTS', lock, queue) == 0) then
    s = load(lock, queue, entries)
    if s.hold and s.hold.owner == 'released:' .. redis.sha1hex(owner) or s:entryOf(owner) then
      return {'again'}
    end
    s:settle()
    free = not s:front() and not s.blocked and s:fits(limit)
    if not free and place == 0 then
      return {'refused', 0, s:describe(s:holds(32))[1]}
    end
    local bar = free and s:barred()
    if bar then
      return bar
    end
  end

  -- The first tokens of a run raise the counter for all of it, and to the clock if that is a
  -- millisecond ahead. A token that the counter has not reached is remembered until it has.
  if floor > clock + 86400000000 then
    return {'ahead'}
  end
  if not nextToken then
    local total = tokens * locks
    local last = call('INCRBY', KEYS[1], format('%d', total))
    if last < clock - 1000 then
      last = clock + total
      call('SET', KEYS[1], format('%d', last))
    end
    nextToken = last - total + 1
    tokensAhead = not allFree and call('EXISTS', ahead) == 1
    if tokensAhead then
      call('ZREMRANGEBYSCORE', ahead, '-inf', format('(%d', nextToken))
    end
  end
  local token = floor > nextToken and floor or nextToken
  if tokensAhead then
    token = math.max(token, (tonumber(call('ZSCORE', ahead, lock) or nil) or 0) + 1)
  end
  if token + tokens - 1 > 9007199254740991 then
    return {'last'}
  end
  nextToken = nextToken + tokens
  if token + tokens > nextToken then
    call('ZADD', ahead, format('%d', token + tokens - 1), lock)
    tokensAhead = true
  end

  if not s then
    if call('SET', lock, owner .. format('\n%d ', token) .. rest, 'NX', 'PXAT', heldEnds) then
      return token
    end
    allFree, nextToken = false, nextToken - tokens -- Two of this run want the lock.
    return verb(lock, queue, entries, owner, floor)
  end
  local e = {owner = owner, kind = free and 'h' or 'p', ends = ms + (free and ttl or place), token = token, limit = limit, rest = rest}
  if free then
    s:grant(e)
    return token
  end
  call('ZADD', queue, format('%d', token), owner)
  wrote = true
  s:put(e)
  return {'waiting', token, s:describe(s:holds(32))[1]}
end
