-- Makes entries. What all have in common: TTL and place in ms, limit, tokens, and holder and metadata.
-- Of each: owner, floor. Answers the token of a hold; or {what, token, what is in the way}.
local ttl, place, limit, tokens, public = match(common, '^(%d+) (%d+) (%d+) (%d+) (.*)$')
now = call('TIME')
clock = now[1] * 1000000 + now[2]
local rest = tokens .. ' ' .. channel .. '\n' .. now[1] .. '\n' .. now[2] .. '\n' .. public
local plain = limit == '1' and ARGV[1] == '0' -- A lock that has nothing can be granted at once.
-- That none of the run has anything, nor any token ahead, is usual, but not after floors.
local allFree = plain and ARGV[6] == '0' and call('EXISTS', unpack(KEYS, 2, shared + 2 * locks)) == 0
local nextToken, lastToken, tokensAhead = 1, 0, not allFree

-- makeToken returns a token, or an answer. The first tokens of a run raise the counter for all of
-- it, and to the clock if that is a millisecond ahead. A token that the counter has not reached is
-- remembered until it has.
local function makeToken(lock, floor)
  local token, ahead = nextToken, KEYS[2]
  floor = tonumber(floor)
  if floor > clock + 86400000000 then
    return {'ahead'}
  end
  if token + tokens - 1 > lastToken then
    local last = call('INCRBY', KEYS[1], tokens * locks)
    if last < clock - 1000 then
      last = clock + tokens * locks
      call('SET', KEYS[1], format('%d', last))
    end
    token = last - tokens * locks + 1
    if tokensAhead then
      call('ZREMRANGEBYSCORE', ahead, '-inf', format('(%d', token))
    end
    lastToken = last -- An error before leaves the counter to the next lock.
  end
  nextToken = token + tokens
  if tokensAhead or floor > token then
    token = math.max(token, floor, (tokensAhead and call('ZSCORE', ahead, lock) or 0) + 1)
  end
  if token + tokens > 9007199254740992 then
    return {'last'}
  elseif token + tokens > nextToken then
    call('ZADD', ahead, format('%d', token + tokens - 1), lock)
    tokensAhead = true
  end
  return token
end

for i = 1, locks do
  local lock = KEYS[shared + i]
  if allFree or plain and call('EXISTS', lock, KEYS[shared + locks + i]) == 0 then
    local done, token = pcall(makeToken, lock, ARGV[4 + 2 * i])
    local made = done and type(token) == 'number'
    local reply = made and redis.pcall('SET', lock, ARGV[3 + 2 * i] .. format('\n%d ', token) .. rest, 'NX', 'PX', ttl)
    if not done or reply and reply.err then
      failures[i] = reply or token
    elseif not made or reply then
      answers[i], answered = token, answered + 1
    end
  end
end
if answered == locks then
  return answers
end

-- include queue.lua

ttl, place, limit, tokens = tonumber(ttl), tonumber(place), tonumber(limit), tonumber(tokens)

local function verb(lock, queue, entries, owner, floor)
  local s = load(lock, queue, entries)
  if s.hold and s.hold.owner == 'released:' .. redis.sha1hex(owner) or s:entryOf(owner) then
    return {'again'}
  end
  s:settle()
  local free = not s:front() and not s.blocked and s:fits(limit)
  if not free and place == 0 then
    return {'refused', 0, s:describe(s:holds(32))[1]}
  end
  local bar = free and s:barred()
  local token = bar or makeToken(lock, floor)
  if type(token) ~= 'number' then
    return token
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
