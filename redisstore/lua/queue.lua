-- An entry has an owner; a kind: h a hold, k a keep, p a place; the last ms in which it is alive; a
-- token; a limit; and the rest, a text of lines: how many tokens it has, and the channel of its
-- client; the seconds of its begin; the µs of that; the holder; the metadata, if there is any.

-- newRule makes the rule of a name's queue, for the first lock of a run that needs it. Package
-- lockqueue has it in Go.
local function newRule()
  local Q = {} -- the functions of a lock that is loaded
  Q.__index = Q
  local unlimited = 2147483647
  local dropping, admitting, bar = 2000, 200, nil -- how many places this run may still drop, and admit
  now = now or call('TIME')
  clock, ms = now[1] * 1000000 + now[2], now[1] * 1000 + math.floor(now[2] / 1000)

  local function write(...)
    local reply = call(...)
    wrote, master = true, true
    return reply
  end

  -- read returns what the entries have of an owner.
  function Q:read(owner)
    local kind, ends, token, limit, rest = match(call('HGET', self.entries, owner) or '', '^(%a) (%d+) (%d+) (%d+) (.*)$')
    return kind and {owner = owner, kind = kind, ends = tonumber(ends), token = tonumber(token), limit = tonumber(limit), rest = rest}
  end

  -- tell notifies the owner of an entry. A token of 0 has it look.
  function Q:tell(e, token)
    local channel = match(e.rest, '^%d+ ([^\n]+)')
    if channel then
      told[#told + 1] = {channel, redis.sha1hex(e.owner) .. format(' %d', token)}
    end
  end

  -- abstains returns for how many ms this server must not grant locks, since it may have forgotten
  -- some. The marker names the reign in which locks were granted last: the run of the server and
  -- the history of its data, which has another name since the server became a master.
  local function abstains(marker)
    local reign = match(call('INFO', 'server'), 'run_id:(%w+)') .. (match(replication, 'master_replid:(%w+)') or '')
    local id, till = match(call('GET', marker) or '', '^(%w+) (%d+)$')
    local left, most = id == reign and till - ms, tonumber(guard)
    if not left or left > most then -- If it is more, the clock was set back.
      left = most
      call('SET', marker, reign .. format(' %d', ms + left))
    end
    return left
  end

  -- barred returns why this server may not grant anything, as an answer, or false. A replica that
  -- works reports each second. One that has not for more than ten, the default of
  -- min-replicas-max-lag, does not count. INFO may show a lag of -1.
  function Q:barred()
    if bar == nil then
      local left, online = guard ~= '0' and abstains(KEYS[#KEYS]) or 0, 0
      for lag in string.gmatch(replication, 'state=online[^\r\n]*lag=(%-?%d+)') do
        online = online + (tonumber(lag) <= 10 and 1 or 0)
      end
      bar = left > 0 and {'abstains', left} or online < tonumber(replicas) and
        {'failed', 0, 'NOREPLICAS ' .. online .. ' replicas are connected, want ' .. replicas .. ' (MinReplicas)'}
    end
    return bar
  end

  -- put writes an entry that is in the queue, and makes the keys outlast it.
  function Q:put(e)
    write('HSET', self.entries, e.owner, format('%s %d %d %d ', e.kind, e.ends, e.token, e.limit) .. e.rest)
    for _, key in ipairs({self.queue, self.entries}) do
      if call('PTTL', key) < e.ends - ms + 1000 then
        call('PEXPIRE', key, format('%d', e.ends - ms + 60000))
      end
    end
  end

  -- drop ends all holds of the lock.
  function Q:drop()
    write('DEL', self.lock)
    if self.counts then
      call('ZREMRANGEBYSCORE', self.queue, '-inf', 0)
    end
    self.n, self.least, self.hold, self.counts, self.foreign = 0, unlimited, nil, nil, nil
  end

  -- save counts the holds that are beside each other and writes the value of their lock, which
  -- lasts as long as the last of them. Holders that were evicted count until then.
  function Q:save()
    local value = 'shared:'
    self.n, self.least = 0, unlimited
    for limit, count in pairs(self.counts) do
      if count > 0 then
        self.n, self.least = self.n + count, math.min(self.least, limit)
        value = value .. format('\n%d %d', limit, count)
      end
    end
    local last = tonumber(call('ZRANGE', self.queue, 0, 0, 'WITHSCORES')[2] or 0)
    local ends = math.max(-last, 0)
    if call('ZCOUNT', self.queue, '-inf', 0) < self.n then
      ends = math.max(ends, self.till or 0)
    end
    if self.n == 0 or ends < ms then
      self:drop()
    else
      write('SET', self.lock, value, 'PXAT', format('%d', ends))
    end
  end

  -- forget takes an entry out of the queue. save follows if it is a hold.
  function Q:forget(owner, e)
    write('ZREM', self.queue, owner)
    call('HDEL', self.entries, owner)
    if e and e.kind ~= 'p' and self.counts then
      self.counts[e.limit] = (self.counts[e.limit] or 1) - 1
    end
  end

  -- load reads what the lock has, and drops holds that have ended. The string of the lock is the
  -- truth: the holders that it does not speak of are over.
  function Q:load()
    local value, since = redis.pcall('GET', self.lock), '-inf' -- All: one that stays would be counted with holds that come.
    self.n, self.least = 0, unlimited
    if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then
      error(value, 0)
    elseif type(value) == 'string' and match(value, '^shared:\n%d+ [1-9]') then
      self.counts, self.till, since = {}, ms + call('PTTL', self.lock), format('(-%d', ms)
      for limit, count in string.gmatch(value, '\n(%d+) (%d+)') do
        self.counts[tonumber(limit)] = tonumber(count)
        self.n, self.least = self.n + count, math.min(self.least, tonumber(limit))
      end
    elseif value then
      local owner, token, rest = match(type(value) == 'string' and value or '', '^([^\n]+)\n([1-9]%d*) ([1-8] [^\n]*\n%d+\n%d+\n.*)$')
      self.n, self.least, self.foreign = 1, 1, not owner and value
      self.hold = owner and {owner = owner, kind = sub(owner, 1, 9) == 'released:' and 'k' or 'h', token = tonumber(token), limit = 1, rest = rest}
    end
    local over = call('ZRANGEBYSCORE', self.queue, since, 0)
    for _, owner in ipairs(over) do
      local e = self:read(owner)
      self:forget(owner, e)
      if e and e.kind == 'h' then
        self:tell(e, 0)
      end
    end
    if self.counts and #over > 0 then
      self:save()
    end
  end

  -- front returns the first place, and drops those before it that have ended. It sets blocked if it
  -- has not found out whether there is one.
  function Q:front()
    local page = 1
    repeat -- It looks at one place at least: another name may have used up what this run may drop.
      local owners, first, over = call('ZRANGEBYSCORE', self.queue, '(0', '+inf', 'LIMIT', 0, page), nil, {}
      for _, owner in ipairs(owners) do
        local e = self:read(owner)
        if e and e.kind == 'p' and e.ends >= ms then
          first = e
          break
        end
        over[#over + 1] = owner
      end
      if #over > 0 then
        call('ZREM', self.queue, unpack(over))
        call('HDEL', self.entries, unpack(over))
        dropping, page = dropping - #over, 20
      end
      self.blocked = not first and #owners > 0
      if not self.blocked then
        return first
      end
    until dropping <= 0
  end

  -- grant makes an entry a hold. Each step leaves the lock as it was, or taken until the end of the
  -- entry.
  function Q:grant(e)
    local waited = e.kind == 'p'
    e.kind = 'h'
    if e.limit > 1 then
      write('ZADD', self.queue, format('%d', -e.ends), e.owner) -- A full server refuses it, and then it is not counted.
      self:put(e)
      self.counts = self.counts or {}
      self.counts[e.limit] = (self.counts[e.limit] or 0) + 1
      self:save()
      return
    end
    self:setHold(e)
    if waited then
      self:forget(e.owner, e)
    end
  end

  -- setHold writes the only hold or keep of the lock.
  function Q:setHold(e)
    write('SET', self.lock, e.owner .. format('\n%d ', e.token) .. e.rest, 'PXAT', format('%d', e.ends))
    self.n, self.least, self.hold = 1, 1, e
  end

  -- settle makes the holds as many as the rule allows, and notifies the owners of the new ones,
  -- except `me`. With replicas a notice has no token: the owner sends a Renew, which WAIT confirms.
  -- A failure to admit others does not fail the verb.
  function Q:settle(me)
    pcall(function()
      while self.n < self.least do
        local e = self:front()
        if not e or self.n >= e.limit or self:barred() then
          return
        elseif admitting == 0 then
          return self:tell(e, 0) -- It goes on.
        end
        admitting = admitting - 1
        self:grant(e)
        if e.owner ~= me then
          self:tell(e, replicas ~= '0' and 0 or e.token)
        end
      end
    end)
  end

  -- entryOf returns the hold, keep or place of an owner.
  function Q:entryOf(owner)
    if self.hold and self.hold.owner == owner then
      return self.hold
    end
    local e = self:read(owner)
    if e and e.ends >= ms and call('ZSCORE', self.queue, owner) then
      return e
    end
  end

  -- waiting counts the places; of a long queue those too that have ended.
  function Q:waiting()
    local owners, n = call('ZRANGEBYSCORE', self.queue, '(0', '+inf', 'LIMIT', 0, 101), 0
    if #owners > 100 then
      return call('ZCOUNT', self.queue, '(0', '+inf')
    end
    for _, owner in ipairs(owners) do
      local e = self:read(owner)
      n = n + (e and e.kind == 'p' and e.ends >= ms and 1 or 0)
    end
    return n
  end

  -- holds returns at most so many holds and keeps, those that end first, oldest first.
  function Q:holds(most)
    if not self.counts then
      return {self.hold}
    end
    local all, passed = {}, math.max(call('ZCOUNT', self.queue, '-inf', 0) - most, 0)
    for _, owner in ipairs(call('ZRANGEBYSCORE', self.queue, '-inf', 0, 'LIMIT', passed, most)) do
      all[#all + 1] = self:read(owner)
    end
    table.sort(all, function(a, b) return a.token < b.token end)
    return all
  end

  -- describe describes holds, or the one that another kind of client has, or that was evicted.
  function Q:describe(list)
    local all = {}
    for i, e in ipairs(list) do
      all[i] = {e.kind == 'k' and 'kept' or 'held', e.ends and e.ends - ms or call('PTTL', self.lock), e.limit,
        format('%d\n', e.token) .. match(e.rest, '\n(.*)$')}
    end
    if #all == 0 and self.n > 0 then
      all[1] = {'foreign', call('PTTL', self.lock), 0, ''}
    end
    return all
  end

  return Q
end

local rule
local function load(lock, queue, entries)
  rule = rule or newRule()
  local s = setmetatable({lock = lock, queue = queue, entries = entries}, rule)
  s:load()
  return s
end
