-- The rule of a name's queue, for all scripts, behind the usual cases of the verbs. Package
-- lockqueue has it in Go.
--
-- An entry has an owner, a kind (h a hold, k a keep, p a place), its end in ms, which is its last
-- ms, token, limit, and the rest: tokens, space, channel of its client; seconds and µs of its
-- begin, holder and metadata, each on a line.
if not now then
  readClock()
end
local unlimited = 2147483647
local dropping, admitting = 2000, 200 -- how many places this run may still drop, and admit

local function write(...)
  local reply = call(...)
  wrote = true
  return reply
end

-- tell notifies the owner of an entry. A token of 0 has it look.
local function tell(e, token)
  local channel = match(e.rest, '^%d+ ([^\n]+)')
  if channel then
    told[#told + 1] = {channel, redis.sha1hex(e.owner) .. format(' %d', token)}
  end
end

-- abstains returns for how many ms this server must not grant locks, since it may have forgotten
-- some, as an answer. The marker names the reign in which locks were granted last: the run of the
-- server and the history of its data, which has another name since the server became a master. A
-- replica that can be written to grants nothing: its master takes everything back.
local function abstains(marker)
  local replication = call('INFO', 'replication')
  if string.find(replication, 'role:slave', 1, true) then
    error({err = 'READONLY a restart guard is of use on a master only'}, 0)
  end
  local reign = match(call('INFO', 'server'), 'run_id:(%w+)') .. (match(replication, 'master_replid:(%w+)') or '')
  local id, till = match(call('GET', marker) or '', '^(%w+) (%d+)$')
  local left = id == reign and till - ms or guard
  if id ~= reign or left > guard then -- If it is more, the clock was set back.
    left = guard
    call('SET', marker, reign .. format(' %d', ms + left))
  end
  return left > 0 and {'abstains', left}
end

-- missing returns the failure of a grant that too few replicas would confirm. A replica that works
-- reports each second. One that has not for more than ten, the default of min-replicas-max-lag,
-- does not count. INFO may show a lag of -1.
local function missing()
  local online = 0
  for lag in string.gmatch(call('INFO', 'replication'), 'state=online[^\r\n]*lag=(%-?%d+)') do
    online = online + (tonumber(lag) <= 10 and 1 or 0)
  end
  return online < replicas and
    {'failed', 0, 'NOREPLICAS ' .. online .. ' replicas are connected, want ' .. replicas .. ' (MinReplicas)'}
end

-- barred returns why nothing may be granted, as an answer, or false.
local bar
local function barred()
  if bar == nil then
    bar = guard > 0 and abstains(KEYS[3]) or replicas > 0 and missing() or false
  end
  return bar
end

local function read(s, owner)
  local kind, ends, token, limit, rest = match(call('HGET', s.entries, owner) or '', '^(%a) (%d+) (%d+) (%d+) (.*)$')
  return kind and {owner = owner, kind = kind, ends = tonumber(ends), token = tonumber(token), limit = tonumber(limit), rest = rest}
end

-- put writes an entry that is in the queue, and makes the keys outlast it.
local function put(s, e)
  write('HSET', s.entries, e.owner, format('%s %d %d %d ', e.kind, e.ends, e.token, e.limit) .. e.rest)
  for _, key in ipairs({s.queue, s.entries}) do
    if call('PTTL', key) < e.ends - ms + 1000 then
      call('PEXPIRE', key, format('%d', e.ends - ms + 60000))
    end
  end
end

-- drop ends all holds of a lock.
local function drop(s)
  write('DEL', s.lock)
  call('ZREMRANGEBYSCORE', s.queue, '-inf', 0)
  s.n, s.least, s.hold, s.counts, s.foreign = 0, unlimited, nil, nil, nil
end

-- hold writes the only hold or keep of a lock.
local function hold(s, e)
  write('SET', s.lock, e.owner .. format('\n%d ', e.token) .. e.rest, 'PXAT', format('%d', e.ends))
  s.n, s.least, s.hold = 1, 1, e
end

-- save counts the holds that are beside each other and writes the value of their lock, which lasts
-- as long as the last of them. Holders that were evicted count until then.
local function save(s)
  local value = 'shared:'
  s.n, s.least = 0, unlimited
  for limit, count in pairs(s.counts) do
    if count > 0 then
      s.n, s.least = s.n + count, math.min(s.least, limit)
      value = value .. format('\n%d %d', limit, count)
    end
  end
  local last = tonumber(call('ZRANGE', s.queue, 0, 0, 'WITHSCORES')[2] or 0)
  local ends = math.max(-last, 0)
  if call('ZCOUNT', s.queue, '-inf', 0) < s.n then
    ends = math.max(ends, s.till or 0)
  end
  if s.n == 0 or ends < ms then
    drop(s)
  else
    write('SET', s.lock, value, 'PXAT', format('%d', ends))
  end
end

-- forget takes an entry out of the queue. save follows if it is a hold.
local function forget(s, owner, e)
  write('ZREM', s.queue, owner)
  call('HDEL', s.entries, owner)
  if e and e.kind ~= 'p' and s.counts then
    s.counts[e.limit] = (s.counts[e.limit] or 1) - 1
  end
end

-- load reads what a lock has, and drops holds that have ended. The string of the lock is the truth:
-- the holders that it does not speak of are over.
local function load(lock, queue, entries)
  local s = {lock = lock, queue = queue, entries = entries, n = 0, least = unlimited}
  local value, since = redis.pcall('GET', lock), '-inf' -- All: one that stays would be counted with holds that come.
  if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then
    error(value, 0)
  elseif type(value) == 'string' and string.sub(value, 1, 7) == 'shared:' then
    s.counts, s.till, since = {}, ms + call('PTTL', lock), format('(-%d', ms)
    for limit, count in string.gmatch(value, '\n(%d+) (%d+)') do
      s.counts[tonumber(limit)] = tonumber(count)
      s.n, s.least = s.n + count, math.min(s.least, tonumber(limit))
    end
  elseif value then
    s.n, s.least, s.foreign = 1, 1, value
    local owner, token, rest = match(type(value) == 'string' and value or '', '^([^\n]+)\n(%d+) (%d+ [^\n]*\n%d+\n%d+\n.*)$')
    if owner then
      s.hold = {owner = owner, kind = string.sub(owner, 1, 9) == 'released:' and 'k' or 'h', token = tonumber(token), limit = 1, rest = rest}
      s.foreign = nil
    end
  end
  local over = call('ZRANGEBYSCORE', queue, since, 0, 'LIMIT', 0, s.counts and 500 or -1)
  for _, owner in ipairs(over) do
    local e = read(s, owner)
    forget(s, owner, e)
    if e and e.kind == 'h' then
      tell(e, 0)
    end
  end
  if s.counts and #over > 0 then
    save(s)
  end
  return s
end

-- front returns the first place, and drops those before it that have ended. s.blocked means that it
-- has not found out whether there is one.
local function front(s)
  local page = 1
  while dropping > 0 do
    local owners, first, over = call('ZRANGEBYSCORE', s.queue, '(0', '+inf', 'LIMIT', 0, page), nil, {}
    for _, owner in ipairs(owners) do
      local e = read(s, owner)
      if e and e.kind == 'p' and e.ends >= ms then
        first = e
        break
      end
      over[#over + 1] = owner
    end
    if #over > 0 then
      call('ZREM', s.queue, unpack(over))
      call('HDEL', s.entries, unpack(over))
      dropping, page = dropping - #over, 20
    end
    if first or #owners == 0 then
      return first
    end
  end
  s.blocked = true
end

local function fits(s, limit)
  return s.n < math.min(s.least, limit)
end

-- grant makes an entry a hold. Each step leaves the lock as it was, or taken until the end of the
-- entry.
local function grant(s, e)
  local waited = e.kind == 'p'
  e.kind = 'h'
  if e.limit > 1 then
    s.counts = s.counts or {}
    s.counts[e.limit] = (s.counts[e.limit] or 0) + 1
    write('ZADD', s.queue, format('%d', -e.ends), e.owner)
    put(s, e)
    save(s)
    return
  end
  hold(s, e)
  if waited then
    forget(s, e.owner, e)
  end
end

-- settle makes the holds as many as the rule allows, and notifies the owners of the new ones,
-- except `me`. A hold that replicas are to confirm is only theirs once they have asked. A failure
-- to admit others does not fail the verb.
local function settle(s, me)
  pcall(function()
    while s.n < s.least do
      local e = front(s)
      if not e or not fits(s, e.limit) or barred() then
        return
      elseif admitting == 0 then
        return tell(e, 0) -- It goes on.
      end
      admitting = admitting - 1
      grant(s, e)
      if e.owner ~= me then
        tell(e, replicas > 0 and 0 or e.token)
      end
    end
  end)
end

-- entryOf returns the hold, keep or place of an owner.
local function entryOf(s, owner)
  if s.hold and s.hold.owner == owner then
    return s.hold
  end
  local e = read(s, owner)
  if e and e.ends >= ms and call('ZSCORE', s.queue, owner) then
    return e
  end
end

-- waiting counts the places; of a long queue those too that have ended.
local function waiting(s)
  local owners, n = call('ZRANGEBYSCORE', s.queue, '(0', '+inf', 'LIMIT', 0, 101), 0
  if #owners > 100 then
    return call('ZCOUNT', s.queue, '(0', '+inf')
  end
  for _, owner in ipairs(owners) do
    local e = read(s, owner)
    n = n + (e and e.kind == 'p' and e.ends >= ms and 1 or 0)
  end
  return n
end

-- holds returns the holds and keeps that a lock has, oldest first, at most so many, or those that
-- end last if there are more.
local function holds(s, most)
  if not s.counts then
    return {s.hold}
  end
  local all = {}
  for _, owner in ipairs(call('ZRANGEBYSCORE', s.queue, '-inf', 0, 'LIMIT', 0, most)) do
    all[#all + 1] = read(s, owner)
  end
  table.sort(all, function(a, b) return a.token < b.token end)
  return all
end

-- describeAll describes holds, or the hold that another kind of client has, or one that was
-- evicted.
local function describeAll(s, list)
  local all = {}
  for i, e in ipairs(list) do
    local public = match(e.rest, '\n(.*)$')
    all[i] = {e.kind == 'k' and 'kept' or 'held', e.ends and e.ends - ms or call('PTTL', s.lock), e.limit, format('%d\n', e.token) .. public}
  end
  if #all == 0 and s.n > 0 then
    all[1] = {'foreign', call('PTTL', s.lock), 0, ''}
  end
  return all
end
