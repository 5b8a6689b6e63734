-- Makes entries. What all have in common: TTL and place in ms, limit, tokens; channel; holder and
-- metadata. Of each: owner, and floor if there is one. Answers the token of a hold; or {what, token,
-- what is in the way}.
local ttl, place, limit, head, tokens, public = match(common, '^(%d+) (%d+) (%d+) ((%d+) [^\n]*\n)(.*)$')
now = call('TIME')
clock = now[1] * 1000000 + now[2]
local rest = head .. now[1] .. '\n' .. now[2] .. '\n' .. public
local plain = limit == '1' and guard == '0' and replicas == '0' -- A lock that has nothing can be granted at once.
local floors = args == 2
-- None of the locks has a value or a queue, and there are no tokens ahead.
local allFree = plain and not floors and call('EXISTS', unpack(KEYS, 2, offset + 2 * locks)) == 0

-- The counter is raised once for all tokens that the run may need, and to the clock if that is a
-- millisecond ahead. Tokens that the counter has passed are forgotten; floors leave that to the run
-- that raises the counter to the clock.
local last = call('INCRBY', KEYS[1], tokens * locks)
master = true
local behind = last < clock - 1000
if behind then
  last = clock + tokens * locks
  call('SET', KEYS[1], format('%d', last))
end
local nextToken = last < 9007199254740992 and last - tokens * locks + 1 or last -- Above, a double is no longer exact.
if not allFree and (behind or not floors) then
  call('ZREMRANGEBYSCORE', KEYS[2], '-inf', format('(%d', nextToken))
end
for i = 1, allFree and last < 9007199254740992 and locks or 0 do
  local set = redis.pcall('SET', KEYS[offset + i], ARGV[1 + i] .. format('\n%d ', nextToken) .. rest, 'NX', 'PX', ttl)
  if set and set.ok then
    answers[i], answered, nextToken = nextToken, answered + 1, nextToken + tokens
  end
end
if answered == locks then
  return answers
end

-- include queue.lua

-- makeToken returns a token, or an answer. A token that the counter has not reached is remembered
-- until it has.
local function makeToken(lock, floor)
  local token, floor = nextToken, tonumber(floor or 0)
  if floor > clock + 86400000000 then
    return {'ahead'}
  elseif not allFree then
    token = math.max(token, floor, (call('ZSCORE', KEYS[2], lock) or 0) + 1)
  end
  nextToken = nextToken + tokens
  if token > 9007199254740992 - tokens then
    return {'last'}
  elseif token + tokens > nextToken then
    call('ZADD', KEYS[2], format('%d', token + tokens - 1), lock)
  end
  return token
end

local function verb(lock, queue, entries, owner, floor)
  if plain and call('EXISTS', lock, queue) == 0 then
    local token = makeToken(lock, floor)
    if type(token) == 'number' then
      call('SET', lock, owner .. format('\n%d ', token) .. rest, 'PX', ttl)
    end
    return token
  end
  local s = load(lock, queue, entries)
  if s.hold and s.hold.owner == 'released:' .. redis.sha1hex(owner) or s:entryOf(owner) then
    return {'again'}
  end
  s:settle()
  local free = not s:front() and not s.blocked and s.n < math.min(s.least, limit)
  local bar = (free or s.n == 0) and s:barred() -- Without a hold the name is not held, whoever waits.
  if not bar and not free and (place == '0' or s.n == 0) then
    return s.n == 0 and {'failed', 0, 'TRYAGAIN places are in the way'} or {'refused', 0, s:describe(s:holds(32))[1]}
  end
  local token = bar or makeToken(lock, floor)
  if type(token) ~= 'number' then
    return token
  end
  local e = {owner = owner, kind = free and 'h' or 'p', ends = ms + (free and ttl or place), token = token, limit = tonumber(limit), rest = rest}
  if free then
    s:grant(e)
    return token
  end
  call('ZADD', queue, format('%d', token), owner)
  wrote = true
  s:put(e)
  return {'waiting', token, s:describe(s:holds(32))[1]}
end
