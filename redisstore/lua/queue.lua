-- The rule of a name's queue, for all scripts. Package lockqueue has it in Go.
--
-- KEYS: the counter, the tokens ahead of it, with a restart guard its marker; then four of each
-- lock: lock, holders, queue, entries. keys.go describes them.
-- ARGV: '0', or the guard in ms, whether the backlog is kept (see guard.lua) and the replicas; then
-- those of the verb.
--
-- An entry has an owner, a kind (h a hold, k a keep, p a place), its end in ms, token, tokens,
-- limit, the channel of its client, and a public part: seconds and µs of its begin, holder,
-- metadata, each on a line. An end is the last ms of the entry.
local call, format = redis.call, string.format
local counter, ahead = KEYS[1], KEYS[2]
local guard, kept, replicas, head = 0, '?', 0, 2
if ARGV[1] ~= '0' then
  guard, kept, replicas = string.match(ARGV[1], '^(%d+) (%S+) (%d+)$')
  guard, replicas = tonumber(guard), tonumber(replicas)
  head = guard > 0 and 3 or 2
end
local now = call('TIME')
local clock, ms = now[1] * 1000000 + now[2], now[1] * 1000 + math.floor(now[2] / 1000)
local shared, maxToken, maxLead = 2147483647, 9007199254740991, 86400000000
local wrote = false -- whether something of the lock was changed
local told = {} -- the notices
local dropping, admitting = 2000, 200 -- how many places this run may still drop, and admit

local function write(...)
  local reply = call(...)
  wrote = true
  return reply
end

-- run runs a verb for each lock, and then sends the notices. A failure concerns one lock. Its answer
-- is {'failed', 1 if something was changed, why}.
local function run(verb, args)
  local answers, locks = {}, (#KEYS - head) / 4
  for i = 1, locks do
    wrote = false
    local k, a = head + 4 * (i - 1), #ARGV - args * (locks - i + 1)
    local s = {lock = KEYS[k + 1], holders = KEYS[k + 2], queue = KEYS[k + 3], entries = KEYS[k + 4], n = 0, least = shared}
    local done, answer = pcall(verb, s, ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], ARGV[a + 4])
    if not done then
      answer = {'failed', wrote and 1 or 0, type(answer) == 'table' and answer.err or tostring(answer)}
    end
    answers[i] = answer
  end
  for _, notice in ipairs(told) do
    redis.pcall('PUBLISH', notice[1], notice[2])
  end
  return answers
end

-- tell notifies the owner of an entry. A token of 0 has it look.
local function tell(e, token)
  if e.channel ~= '' then
    told[#told + 1] = {e.channel, redis.sha1hex(e.owner) .. ' ' .. format('%.0f', token)}
  end
end

local bar -- why nothing may be granted, as an answer; nil before that is known
local function barred()
  if bar == nil then
    local abstain, unknown, short = 0, false, nil
    if guard > 0 then
      abstain, unknown = abstains(KEYS[3], guard, kept, now)
      if not abstain then
        error({err = 'READONLY a restart guard is of use on a master only'}, 0)
      end
    end
    short = replicas > 0 and missing(replicas)
    bar = abstain > 0 and {'abstains', abstain, unknown and 1 or 0} or short and {'failed', 0, short} or false
  end
  return bar
end

local function read(owner, text)
  local kind, ends, token, tokens, limit, channel, public =
    string.match(text or '', '^(%a) (%d+) (%d+) (%d+) (%d+) ([^\n]*)\n(.*)$')
  return kind and {
    owner = owner, kind = kind, ends = tonumber(ends), token = tonumber(token), tokens = tonumber(tokens),
    limit = tonumber(limit), channel = channel, public = public,
  }
end

local function put(s, e)
  write('HSET', s.entries, e.owner,
    format('%s %.0f %.0f %.0f %.0f %s\n', e.kind, e.ends, e.token, e.tokens, e.limit, e.channel) .. e.public)
end

-- outlast makes keys last longer than an entry.
local function outlast(ends, ...)
  for _, key in ipairs({...}) do
    if call('PTTL', key) < ends - ms + 1000 then
      call('PEXPIRE', key, format('%.0f', ends - ms + 60000))
    end
  end
end

-- text returns the value of a lock that has one hold, or the keep after it.
local function text(first, e)
  return first .. '\n' .. format('%.0f %.0f', e.token, e.tokens) .. (e.channel ~= '' and ' ' .. e.channel or '') .. '\n' .. e.public
end

-- save counts the holds that are beside each other and writes the value of their lock, which lasts
-- as long as the last of them. Holders that were evicted count until then.
local function save(s)
  local value = 'shared:'
  s.n, s.least = 0, shared
  for limit, count in pairs(s.counts) do
    if count > 0 then
      s.n, s.least = s.n + count, math.min(s.least, limit)
      value = value .. format('\n%.0f %.0f', limit, count)
    end
  end
  if s.n == 0 then
    s.counts = nil
    write('DEL', s.lock, s.holders)
    return
  end
  local ends = tonumber(call('ZRANGE', s.holders, -1, -1, 'WITHSCORES')[2] or 0)
  if call('ZCARD', s.holders) < s.n then
    ends = math.max(ends, s.till or 0)
  end
  if ends < ms then
    write('DEL', s.lock, s.holders)
    s.n, s.least, s.counts = 0, shared, nil
    return
  end
  write('SET', s.lock, value, 'PXAT', format('%.0f', ends))
  outlast(ends, s.holders, s.entries)
end

-- forget takes a hold out of those beside each other. save follows.
local function forget(s, owner, e)
  write('ZREM', s.holders, owner)
  if e then
    s.counts[e.limit] = (s.counts[e.limit] or 1) - 1
    write('HDEL', s.entries, owner)
  end
end

-- load reads what a lock has, and drops what has ended. The string of the lock is the truth: the
-- holders that it does not speak of are over.
local function load(s)
  local value = redis.pcall('GET', s.lock)
  if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then
    error(value, 0)
  elseif type(value) == 'string' and string.sub(value, 1, 7) == 'shared:' then
    s.counts, s.till = {}, ms + call('PTTL', s.lock)
    for limit, count in string.gmatch(value, '\n(%d+) (%d+)') do
      s.counts[tonumber(limit)] = tonumber(count)
      s.n, s.least = s.n + count, math.min(s.least, tonumber(limit))
    end
    local over = call('ZRANGEBYSCORE', s.holders, '-inf', format('(%.0f', ms), 'LIMIT', 0, 500)
    for _, owner in ipairs(over) do
      local e = read(owner, call('HGET', s.entries, owner))
      forget(s, owner, e)
      if e and e.kind == 'h' then
        tell(e, 0)
      end
    end
    if #over > 0 then
      save(s)
    end
    return
  elseif value then
    s.n, s.least, s.foreign = 1, 1, value
    local owner, token, tokens, channel, public =
      string.match(type(value) == 'string' and value or '', '^([^\n]+)\n(%d+) ?(%d*) ?([^\n]*)\n(%d+\n%d+\n.*)$')
    if owner then
      s.foreign = nil
      s.hold = {owner = owner, kind = string.sub(owner, 1, 9) == 'released:' and 'k' or 'h', token = tonumber(token),
        tokens = tonumber(tokens) or 1, limit = 1, channel = channel, public = public}
    end
  end
  local lost = call('ZRANGE', s.holders, 0, 999)
  while #lost > 0 do -- All of them: one that stays would be counted with holds that come.
    for _, owner in ipairs(lost) do
      local e = read(owner, call('HGET', s.entries, owner))
      if e and e.kind == 'h' then
        tell(e, 0)
      end
    end
    call('HDEL', s.entries, unpack(lost))
    call('ZREM', s.holders, unpack(lost))
    lost = call('ZRANGE', s.holders, 0, 999)
  end
end

-- front returns the first place, and drops those before it that have ended. s.blocked means that it
-- has not found out whether there is one.
local function front(s)
  while dropping > 0 do
    local page, over = call('ZRANGE', s.queue, 0, 19), {}
    for _, owner in ipairs(page) do
      local e = read(owner, call('HGET', s.entries, owner))
      if e and e.kind == 'p' and e.ends >= ms then
        page = over
        page.first = e
        break
      end
      over[#over + 1] = owner
    end
    if #over > 0 then
      call('ZREM', s.queue, unpack(over))
      call('HDEL', s.entries, unpack(over))
      dropping = dropping - #over
    end
    if page.first or #page == 0 then
      return page.first
    end
  end
  s.blocked = true
end

local function fits(s, limit)
  return s.n == 0 or s.n < math.min(s.least, limit)
end

-- grant makes an entry a hold. Each step leaves the lock as it was, or taken until the end of the entry.
local function grant(s, e)
  local waited = e.kind == 'p'
  e.kind = 'h'
  if e.limit == 1 then
    write('SET', s.lock, text(e.owner, e), 'PXAT', format('%.0f', e.ends))
    s.n, s.least, s.hold = 1, 1, e
    if waited then
      call('HDEL', s.entries, e.owner)
    end
  else
    s.counts = s.counts or {}
    s.counts[e.limit] = (s.counts[e.limit] or 0) + 1
    write('ZADD', s.holders, format('%.0f', e.ends), e.owner)
    put(s, e)
    save(s)
  end
  if waited then
    call('ZREM', s.queue, e.owner)
  end
end

-- settle makes the holds as many as the rule allows, and notifies the owners of the new ones, except
-- `me`. A hold that replicas are to confirm is only theirs once they have asked.
local function settle(s, me)
  local e = front(s)
  while e and fits(s, e.limit) and not barred() do
    if admitting == 0 then
      tell(e, 0) -- It goes on.
      return
    end
    admitting = admitting - 1
    grant(s, e)
    if e.owner ~= me then
      tell(e, replicas > 0 and 0 or e.token)
    end
    e = front(s)
  end
end

-- settled loads a lock and settles it. A failure to admit others does not fail the verb.
local function settled(s, me)
  load(s)
  pcall(settle, s, me)
end

-- entryOf returns the hold beside others, keep or place of an owner.
local function entryOf(s, owner)
  local e = read(owner, call('HGET', s.entries, owner))
  local listed = e and (e.kind == 'p' and s.queue or s.counts and s.holders)
  if listed and e.ends >= ms and call('ZSCORE', listed, owner) then
    return e
  end
end

-- waiting counts the places; of a long queue those too that have ended.
local function waiting(s)
  local owners = call('ZRANGE', s.queue, 0, 100)
  if #owners > 100 then
    return call('ZCARD', s.queue)
  end
  local n = 0
  for _, owner in ipairs(owners) do
    local e = read(owner, call('HGET', s.entries, owner))
    n = n + (e and e.kind == 'p' and e.ends >= ms and 1 or 0)
  end
  return n
end

local function describe(s, e)
  return {e.kind == 'k' and 'kept' or 'held', e.ends and e.ends - ms or call('PTTL', s.lock), e.limit, format('%.0f\n', e.token) .. e.public}
end

-- holds returns the holds and keeps that a lock has, oldest first, at most so many, or those that
-- end first if there are more.
local function holds(s, most)
  if not s.counts then
    return {s.hold}
  end
  local all = {}
  for _, owner in ipairs(call('ZRANGE', s.holders, 0, most - 1)) do
    all[#all + 1] = read(owner, call('HGET', s.entries, owner))
  end
  table.sort(all, function(a, b) return a.token < b.token end)
  return all
end

-- describeAll describes holds, or the hold that another kind of client has, or one that was evicted.
local function describeAll(s, list)
  local all = {}
  for i, e in ipairs(list) do
    all[i] = describe(s, e)
  end
  if #all == 0 and s.n > 0 then
    all[1] = {'foreign', call('PTTL', s.lock), 0, ''}
  end
  return all
end
