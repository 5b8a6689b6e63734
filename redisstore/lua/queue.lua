-- Functions for the queue of a lock. keys.go describes its keys.
--
-- An owner is followed by a line break, also as a member of the queue. What a script changes for
-- one lock is complete before the message about it goes out: a receiver relies on the message.
local clock = now[1] * 1000000 + now[2]
local barred = abstain > 0 or short
local admissions, most = 0, 200 -- how many places this run has admitted, and may
local aside = 4503599627370496 -- is added to the position of a place that was passed over
local listening = {} -- what is known of the clients of places, by reach and id

local function keysOf(lock)
  return base .. 'queue\31' .. lock, base .. 'places\31' .. lock
end

-- readPlace returns a place from its text, or nil if the text is none or the place is over.
local function readPlace(text)
  local ends, reach, id, tokens, floor, limit, public =
    string.match(text or '', '^(%d+) (%a)(%w+) (%d+) (%d+) ?(%-?%d*)\n(.*)$')
  if ends and tonumber(ends) > ms then
    return {
      ends = tonumber(ends), reach = reach, id = id, tokens = tonumber(tokens), floor = tonumber(floor),
      limit = tonumber(limit) or 0, public = public,
    }
  end
end

local function writePlace(places, owner, place)
  local head = format('%.0f %s%s %.0f %.0f', place.ends, place.reach, place.id, place.tokens, place.floor)
  if place.limit ~= 0 then
    head = head .. format(' %.0f', place.limit)
  end
  call('HSET', places, owner, head .. '\n' .. place.public)
end

-- placeOf returns the place of an owner that has sent a request, or nil. A place that was set aside
-- has its turn again.
local function placeOf(lock, owner)
  local queue, places = keysOf(lock)
  local position = tonumber(call('ZSCORE', queue, owner) or nil)
  local place = position and readPlace(call('HGET', places, owner))
  if place and position >= aside then
    call('ZADD', queue, format('%.0f', position - aside), owner)
  end
  return place or nil
end

-- front returns the owner and the place of the first in line, or of the first behind i others that
-- `fit` accepts, and how many are before it. On its way it removes places that are over, and sets
-- those aside, behind all others, that `fit` does not accept: the next walk does not meet them.
local function front(lock, fit, i)
  local queue, places = keysOf(lock)
  local size, found, place = 1, nil, nil -- It reads one owner, and then a hundred at once.
  i = i or 0
  while true do
    local page = call('ZRANGE', queue, i, i + size - 1, 'WITHSCORES')
    local over, away, ended = {}, {}, #page == 0
    for at = 1, #page, 2 do
      local owner, position = page[at], tonumber(page[at + 1])
      place = readPlace(call('HGET', places, owner))
      found = place and (not fit or fit(owner, place)) and owner
      ended = place and position >= aside
      if found or ended then
        break
      elseif place then
        away[#away + 1], away[#away + 2] = format('%.0f', position + aside), owner
      else
        over[#over + 1] = owner
      end
    end
    if #over > 0 then
      call('ZREM', queue, unpack(over))
      redis.pcall('HDEL', places, unpack(over))
    end
    if #away > 0 and type(redis.pcall('ZADD', queue, unpack(away))) == 'table' then
      i = i + #away / 2 -- They stay, as on a full server.
    end
    if found then
      return found, place, i
    elseif ended then
      return nil
    end
    size = 100
  end
end

-- waiting counts the places of a lock; of a long queue those too that are over and not removed yet,
-- since the server has other clients. It is for people, and never fails.
local function waiting(lock)
  local queue, places = keysOf(lock)
  local all = redis.pcall('ZCARD', queue)
  if type(all) == 'number' and all > 100 then
    return all
  end
  local texts, n = redis.pcall('HVALS', places), 0
  for _, text in ipairs(texts.err and {} or texts) do
    n = n + (readPlace(text) and 1 or 0)
  end
  return n
end

local function channelOf(id)
  return base .. 'notices\31' .. id
end

local function sharded(reach)
  return reach == 'S' or reach == 's'
end

-- listens reports whether the client of a place can be sent a message. One that is dead cannot: its
-- connection is closed. If the client has found that this server counts wrong, by a small letter,
-- or if the user may not ask, the client is taken for one that listens.
local function listens(place)
  if place.reach ~= 'S' and place.reach ~= 'P' then
    return true
  end
  local client = place.reach .. place.id
  if listening[client] == nil then
    local reply = redis.pcall('PUBSUB', sharded(place.reach) and 'SHARDNUMSUB' or 'NUMSUB', channelOf(place.id))
    listening[client] = reply.err ~= nil or reply[2] ~= 0
  end
  return listening[client]
end

-- notify sends a message. A token of 0 means that the owner should claim. How many receive it is
-- not known: the answer does not count subscribers of replicas.
local function notify(lock, owner, reach, id, token, tokens)
  redis.pcall(sharded(reach) and 'SPUBLISH' or 'PUBLISH', channelOf(id), format('%.0f\n%.0f\n', token, tokens) .. owner .. lock)
end

-- notifyFirst has the first in line claim.
local function notifyFirst(lock)
  local owner, place = front(lock)
  if owner then
    notify(lock, owner, place.reach, place.id, 0, 0)
  end
end

-- setMark sets or clears the mark in a value of this package: a release of a lock without it does
-- not look at the queue.
local function setMark(lock, value, marked)
  local owner, public = string.match(type(value) == 'string' and value or '', '^([^\n]*)(\n%d+\n%d+\n%d+\n.*)$')
  if owner and (string.sub(owner, -1) == '\31') ~= marked then
    owner = marked and owner .. '\31' or string.sub(owner, 1, -2)
    redis.pcall('SET', lock, owner .. public, 'KEEPTTL')
  end
end

-- grant gives a lock to an owner until `ends`, by the rule of acquire.lua, over the hold that there
-- may be, or beside the holders whose state is `set`. It returns the token and how many there are,
-- or nil and why. Then the lock is as it was, or free.
local function grant(lock, owner, wish, ends, set)
  local queue, places = keysOf(lock)
  local last = tonumber(call('GET', counter) or 0)
  if not last then
    return nil, 'HOLDFAST the counter is not a number'
  end
  local said = math.max(clock, last + 1)
  if wish.floor > said + maxLead then
    return nil, 'ahead'
  end
  local token = math.max(said, wish.floor, (tonumber(call('ZSCORE', ahead, lock) or nil) or -1) + 1)
  if token > maxToken then
    return nil, 'exhausted'
  end
  local several = math.max(wish.tokens, 1)
  if token + several - 1 > math.min(math.max(clock, wish.floor) + maxTokensLead, maxToken) then
    several = 1
  end
  local final, text = token + several - 1, format('%.0f', said)
  local begin = now[1] .. '\n' .. now[2] .. '\n' .. wish.public
  local steps, after
  if wish.limit == 0 then
    local others = call('ZCARD', queue) > (wish.ends and 1 or 0)
    local value = string.sub(owner, 1, -2) .. (others and '\31\n' or '\n') .. format('%.0f', token) .. '\n' .. begin
    steps = {{'SET', lock, value, 'PXAT', format('%.0f', ends)}}
  else
    defineHolders()
    local hold = {token = token, tokens = several, limit = wish.limit, public = begin}
    steps, after = stepsBeside(lock, owner, set, hold, ends)
  end
  local own = #steps -- Those behind are not about the lock.
  steps[#steps + 1] = {'SET', counter, text}
  if call('ZCARD', ahead) > 0 then
    steps[#steps + 1] = {'ZREMRANGEBYSCORE', ahead, '(-inf', text}
  end
  if final > said then
    steps[#steps + 1] = {'ZADD', ahead, '-inf', string.rep('-', 65), format('%.0f', final), lock}
  end
  if wish.ends then -- It has a place.
    steps[#steps + 1] = {'ZREM', queue, owner}
  end
  for i, step in ipairs(steps) do
    local reply = redis.pcall(unpack(step))
    if type(reply) == 'table' and reply.err then
      local undone = i == 1 or after and remove(lock, owner, set, i > own) or not after and type(redis.pcall('DEL', lock)) ~= 'table'
      return nil, (undone and '' or 'PARTIAL ') .. reply.err
    end
  end
  if wish.ends then
    redis.pcall('HDEL', places, owner) -- What is left without the right to it is no place.
  end
  set.exclusive = not after
  for key, value in pairs(after or {last = ends}) do
    set[key] = value
  end
  return token, several
end

-- settle gives a lock that is free, or is being freed, or has holders that tolerate others, to those
-- in front of the queue that may have it, in order, and notifies their clients, last of all. Places
-- whose clients do not listen are passed over. `set` is the state of the holders, and `me` the owner
-- of this request if it has a place: it then holds the lock for ttl at least, and is not notified.
-- settle returns what the owner `me` is granted, or nil, and why it stopped if that was a failure.
-- It sets set.blocked if a place that does not hold yet stops those behind it: one that may not, or
-- the next when this run has admitted so many that it would hold up the server's other clients. The
-- claim of that one goes on, or any other request that examines the lock. If nobody is admitted the
-- lock is as it was, or free.
local function settle(lock, set, me, ttl)
  if barred then
    if unknown then
      notifyFirst(lock) -- Its claim finds out: see guard.lua.
    end
    return nil
  end
  local function accept(owner, place)
    return owner == me or listens(place)
  end
  local mine, why, admitted, i = nil, nil, {}, 0
  repeat
    local owner, place
    owner, place, i = front(lock, accept, i)
    if owner and not fits(set, place) then
      set.blocked, owner = true, nil
    end
    if owner then
      local ends = place.ends - 1 -- the last millisecond of the hold
      if owner == me then
        ends = math.max(ends, ms + ttl)
      end
      local token, several = grant(lock, owner, place, ends, set)
      if not token then
        why, owner = several, nil
      elseif owner == me then
        mine = {'granted', token, several}
      else
        -- A script cannot wait for replicas, which a hold needs that counts.
        admitted[#admitted + 1] = {lock, owner, place.reach, place.id, replicas > 0 and 0 or token, several}
      end
      admissions = admissions + (token and 1 or 0)
    end
  until not owner or set.exclusive or admissions >= most
  if not set.exclusive and admissions >= most then
    local owner, place = front(lock, accept, i)
    set.blocked = set.blocked or owner ~= nil
    if owner and fits(set, place) then
      admitted[#admitted + 1] = {lock, owner, place.reach, place.id, 0, 0}
    end
  end
  for _, words in ipairs(admitted) do
    notify(unpack(words))
  end
  return mine, why
end

-- quietly returns what f returns, or nothing if it fails: a failure of the part for the queue, as
-- of a user that may not use a command, must not fail what concerns a hold.
local function quietly(f, ...)
  local done, a, b, c = pcall(f, ...)
  if done then
    return a, b, c
  end
end

-- free ends a hold or keep that tolerates no other. The lock goes to the next in line without having
-- been free.
local function free(lock)
  local set = {slots = 0}
  quietly(settle, lock, set)
  if not set.last then
    call('DEL', lock)
  end
end

-- outlast makes keys last longer than a place with so much time left.
local function outlast(left, ...)
  for _, key in ipairs({...}) do
    if call('PTTL', key) < left + 1000 then
      call('PEXPIRE', key, left + 60000)
    end
  end
  if call('PTTL', queues) <= left then
    call('SET', queues, '', 'PX', 2 * left)
  end
end

-- extend prolongs a place. If its client, which has sent this request, does not listen, the place is
-- not passed over from now on: the client finds its hold by its next renewal.
local function extend(lock, owner, place, left)
  local queue, places = keysOf(lock)
  place.ends = math.max(place.ends, ms + 1 + left)
  if not listens(place) then
    place.reach = string.lower(place.reach)
  end
  writePlace(places, owner, place)
  outlast(left, queue, places)
end

-- dropAside removes places that were set aside and are over, and returns the position of the last
-- place that was not set aside, or nil.
local function dropAside(lock)
  local queue, places = keysOf(lock)
  for _, owner in ipairs(call('ZRANGE', queue, format('%.0f', aside), '+inf', 'BYSCORE', 'LIMIT', 0, 100)) do
    if readPlace(call('HGET', places, owner)) then
      break -- Those that came later end later, as a rule.
    end
    call('ZREM', queue, owner)
    redis.pcall('HDEL', places, owner)
  end
  return call('ZRANGE', queue, format('(%.0f', aside), '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')[2]
end

-- enter gives an owner a place at the end of the queue. `wait` is what
-- verbs.go makes of the request, and `wish` has what the hold needs.
local function enter(lock, owner, wait, wish)
  local left, reach, id = string.match(wait, '^(%d+) (%a)(%w+)$')
  left = tonumber(left)
  local queue, places = keysOf(lock)
  wish.ends, wish.reach, wish.id = ms + 1 + left, reach, id
  local last = tonumber(call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2] or nil)
  if last and last >= aside then
    last = tonumber(dropAside(lock))
  end
  call('HGET', places, owner) -- If this and what admits a place are not allowed, it fails here.
  call('ZREM', queue, owner)
  call('EXISTS', queue)
  writePlace(places, owner, wish)
  call('ZADD', queue, format('%.0f', math.max(clock, (last or 0) + 1)), owner)
  outlast(left, queue, places)
end

-- leave removes the place of an owner, and reports whether there was a place.
local function leave(lock, owner)
  local queue, places = keysOf(lock)
  if not call('ZSCORE', queue, owner) then
    return false
  end
  local place = readPlace(call('HGET', places, owner))
  call('ZREM', queue, owner)
  redis.pcall('HDEL', places, owner)
  return place ~= nil
end

-- answer describes what is in the way of an owner, how many places there are, and whether the owner
-- has a place: 2 if it is the first in line, 1 if not, or if it waits without a place.
local function answer(value, lock, owner, queued)
  local words
  if holdersIn(value) then
    defineHolders()
    words = quietly(oldest, lock, value)
  end
  words = words or describe(value, lock) or {'free', -1, -1, ''}
  words[5], words[6] = waiting(lock), 0
  if queued then
    words[6] = front(lock) == owner and 2 or 1
  end
  return words
end
