-- Makes entries. ARGV: the channel of the client, TTL in ms, place in ms, limit, tokens, and holder
-- and metadata; of each owner and floor. Answers the token of a hold; or {what, token, what is in
-- the way}.
local ahead, ttl, limit, tokens, nextToken, tokensAhead = KEYS[2], ARGV[4], tonumber(ARGV[6]), tonumber(ARGV[7]), nil, false
readClock()
local ends = format('%d', ms + ttl)
local rest = format('%d %s\n%s\n%s\n%s', tokens, ARGV[3], now[1], now[2], ARGV[8])
local free = call('EXISTS', unpack(KEYS, 2)) == 0 -- as nearly always

-- take makes the tokens of an entry. The first ones of a run raise the counter for all of it, and
-- to the clock if that is a millisecond ahead. A token that the counter has not reached is
-- remembered until it has. It returns the refusal instead if there is no such token.
local function take(lock, floor)
  if floor > clock + 86400000000 then
    return nil, {'ahead'}
  end
  if not nextToken then
    local total = tokens * locks
    local last = call('INCRBY', KEYS[1], format('%d', total))
    if last < clock - 1000 then
      last = clock + total
      call('SET', KEYS[1], format('%d', last))
    end
    nextToken = last - total + 1
    if tokensAhead then
      call('ZREMRANGEBYSCORE', ahead, '-inf', format('(%d', nextToken))
    end
  end
  local token = floor > nextToken and floor or nextToken
  if tokensAhead then
    token = math.max(token, (tonumber(call('ZSCORE', ahead, lock) or nil) or 0) + 1)
  end
  if token + tokens - 1 > 9007199254740991 then
    return nil, {'last'}
  end
  nextToken = nextToken + tokens
  if token + tokens > nextToken then
    call('ZADD', ahead, format('%d', token + tokens - 1), lock)
    tokensAhead = true
  end
  return token
end

local function usual(lock, queue, _, a)
  if not free then
    if call('EXISTS', lock, queue) > 0 then
      return nil
    end
    tokensAhead = tokensAhead or call('EXISTS', ahead) == 1
  end
  local token, refusal = take(lock, tonumber(ARGV[a + 2]))
  if token and not call('SET', lock, ARGV[a + 1] .. format('\n%d ', token) .. rest, 'NX', 'PXAT', ends) then
    return nil -- Two want this lock at once.
  end
  return token or refusal
end

if limit == 1 and ARGV[1] == '0' and run(usual, 2) then
  return answers
end
-- queue.lua
local function acquire(lock, queue, entries, a)
  local s, owner, place = load(lock, queue, entries), ARGV[a + 1], tonumber(ARGV[5])
  if s.hold and s.hold.owner == 'released:' .. redis.sha1hex(owner) or entryOf(s, owner) then
    return {'again'}
  end
  settle(s)
  local free = not front(s) and not s.blocked and fits(s, limit)
  if not free and place == 0 then
    return {'refused', 0, describeAll(s, holds(s, 32))[1]}
  end
  local refusal, token = free and barred(), nil
  if not refusal then
    tokensAhead = call('EXISTS', ahead) == 1
    token, refusal = take(lock, tonumber(ARGV[a + 2]))
  end
  if refusal then
    return refusal
  end
  local e = {owner = owner, kind = free and 'h' or 'p', ends = ms + (free and ttl or place), token = token, limit = limit, rest = rest}
  if free then
    grant(s, e)
    return token
  end
  write('ZADD', queue, format('%d', token), owner)
  put(s, e)
  return {'waiting', token, describeAll(s, holds(s, 32))[1]}
end

return run(acquire, 2)
