-- Makes entries. ARGV: the channel of the client; for each lock owner, TTL in ms, holder and
-- metadata, and '' or place in ms, limit, tokens and floor. Answers the token of a hold; or {what,
-- token, places, what is in the way}.
local channel, total, nextToken, remembered = ARGV[2], 0, nil, false
for a = 6, #ARGV, 4 do
  total = total + tonumber(string.match(ARGV[a], '^%d+ %d+ (%d+)') or 1)
end

-- take makes the tokens of an entry. The first one of a run raises the counter for all of it. A
-- token that the counter has not reached is remembered until it has.
local function take(lock, tokens, floor)
  if not nextToken then
    local last = tonumber(call('GET', counter) or 0)
    if not last then
      error({err = 'HOLDFAST the counter is not a number'}, 0)
    end
    nextToken = math.max(last + 1, clock)
    remembered = call('EXISTS', ahead) == 1
    call('SET', counter, format('%.0f', math.min(nextToken + total - 1, maxToken)))
    if remembered then
      call('ZREMRANGEBYSCORE', ahead, '(-inf', format('(%.0f', nextToken))
    end
  end
  local token = math.max(nextToken, floor)
  if remembered then
    token = math.max(token, (tonumber(call('ZSCORE', ahead, lock) or nil) or 0) + 1)
  end
  if token + tokens - 1 > maxToken then
    return nil
  end
  nextToken = nextToken + tokens
  if token + tokens > nextToken then
    if not remembered then -- A member this long makes the set a tree, not a list, which takes longer.
      call('ZADD', ahead, '-inf', string.rep('-', 65))
    end
    call('ZADD', ahead, format('%.0f', token + tokens - 1), lock)
    remembered = true
  end
  return token
end

local function acquire(s, owner, ttl, public, more)
  local place, limit, tokens, floor = 0, 1, 1, 0
  if more ~= '' then
    place, limit, tokens, floor = string.match(more, '^(%d+) (%d+) (%d+) (%d+)$')
    place, limit, tokens, floor = tonumber(place), tonumber(limit), tonumber(tokens), tonumber(floor)
  end
  if floor > clock + maxLead then
    return {'ahead'}
  end
  local free = call('EXISTS', s.lock, s.holders, s.queue) == 0
  if not free then
    load(s)
    if s.hold and (s.hold.owner == owner or s.hold.owner == 'released:' .. redis.sha1hex(owner)) or entryOf(s, owner) then
      return {'again'}
    end
    settle(s)
    free = not front(s) and not s.blocked and fits(s, limit)
  end
  if not free and place == 0 then
    return {'refused', 0, waiting(s), describeAll(s, holds(s, 32))[1]}
  end
  local refusal = free and barred()
  if refusal then
    return refusal
  end
  local token = take(s.lock, tokens, floor)
  if not token then
    return {'last'}
  end
  local e = {
    owner = owner, kind = 'h', ends = ms + ttl, token = token, tokens = tokens, limit = limit, channel = channel,
    public = now[1] .. '\n' .. now[2] .. '\n' .. public,
  }
  if free then
    grant(s, e)
    return token
  end
  e.kind, e.ends = 'p', ms + place
  write('ZADD', s.queue, format('%.0f', token), owner)
  put(s, e)
  outlast(e.ends, s.queue, s.entries)
  return {'waiting', token, waiting(s), describeAll(s, holds(s, 32))[1]}
end

return run(acquire, 4)
