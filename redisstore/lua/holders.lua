-- Functions for holders that tolerate each other. keys.go describes their keys.
--
-- The key of the lock is the truth. Its value has a number of this generation of holders, how many
-- they are, how many of them are limited, the end of the last of them, at which the key expires, and how
-- long the other two keys last. It goes with the last holder that is released. What is left of a
-- generation without that key is over. If holders are missing in the other keys, as after an
-- eviction, the lock stays until its key expires.
local base = string.sub(counter, 1, -8) -- without the word counter
local ms = now[1] * 1000 + math.floor(now[2] / 1000)

local drop, stateOf, holdOf, setEnd, keepHold, prolongHold, stepsBeside, remove, allOf, oldest, describeAll

-- defineHolders defines these functions. It is called where there are such holders or is to be one:
-- to define the functions takes other requests longer than a few commands.
local function defineHolders()
  if drop then
    return
  end

  local function holderKeysOf(lock)
    return base .. 'holders\31' .. lock, base .. 'ends\31' .. lock
  end

  -- lockOf returns the command that sets the key of a lock to the state of its holders.
  local function lockOf(lock, set)
    local value = format('shared:%s %.0f %.0f %.0f %.0f', set.generation, set.count, set.slots, set.last, set.lasts)
    return {'SET', lock, value, 'PXAT', format('%.0f', set.last)}
  end

  -- readHold returns a hold or keep of a generation from its text, or nil if the text is none.
  local function readHold(text, generation)
    local of, token, tokens, limit, kept, public =
      string.match(text or '', '^(%d+) (%d+) (%d+) (%-?%d+) (%d)\n(.*)$')
    if of == generation then
      return {
        token = tonumber(token), tokens = tonumber(tokens), limit = tonumber(limit),
        kept = kept == '1', public = public,
      }
    end
  end

  local function textOf(hold, generation)
    local kept = hold.kept and 1 or 0
    return generation .. format(' %.0f %.0f %.0f %d\n', hold.token, hold.tokens, hold.limit, kept) .. hold.public
  end

  -- lastOf returns the end of the last holder, or nil if some holders are missing. It never fails.
  local function lastOf(lock, set)
    local hash, ends = holderKeysOf(lock)
    if redis.pcall('HLEN', hash) == set.count and redis.pcall('ZCARD', ends) == set.count then
      return tonumber(redis.pcall('ZRANGE', ends, -1, -1, 'WITHSCORES')[2])
    end
  end

  -- drop ends holds and keeps of holders, and the lock with the last of them. It does not fail once a
  -- hold has ended: the lock lasts until its end if it cannot be written.
  function drop(lock, set, owners)
    local hash, ends = holderKeysOf(lock)
    for i = 1, #owners, 1000 do -- so many arguments a command can have
      local part = {unpack(owners, i, math.min(i + 999, #owners))}
      local texts = call('HMGET', hash, unpack(part))
      set.count = set.count - call('HDEL', hash, unpack(part))
      redis.pcall('ZREM', ends, unpack(part))
      for _, text in ipairs(texts) do
        local hold = readHold(text, set.generation)
        set.slots = set.slots - (hold and hold.limit > 0 and 1 or 0)
      end
    end
    if set.count == 0 then
      redis.pcall('DEL', lock, hash, ends)
      set.generation, set.count, set.slots, set.last, set.lasts = nil, nil, 0, nil, nil
    else
      set.last = lastOf(lock, set) or set.last
      redis.pcall(unpack(lockOf(lock, set)))
    end
  end

  -- stateOf returns the state of the holders of a lock, which it drops if they are over.
  function stateOf(lock, generation, count, slots, last, lasts)
    local set = {
      generation = generation, count = tonumber(count), slots = tonumber(slots), last = tonumber(last), lasts = tonumber(lasts),
    }
    local _, ends = holderKeysOf(lock)
    local over = call('ZRANGE', ends, '-inf', format('(%.0f', ms), 'BYSCORE')
    if #over > 0 then
      drop(lock, set, over)
    end
    return set
  end

  -- holdOf returns the hold or keep of an owner among the holders, or nil.
  function holdOf(lock, set, owner)
    if not set or not set.last then
      return nil
    end
    local hash, ends = holderKeysOf(lock)
    local hold = readHold(call('HGET', hash, owner), set.generation)
    if hold then
      hold.ends = tonumber(call('ZSCORE', ends, owner))
    end
    return hold and hold.ends and hold
  end

  -- setEnd sets the end of a hold or keep. It writes even if nothing changes: see prolong.lua. A full
  -- server refuses SET and ZADD unless the script has written already, as by PEXPIREAT.
  function setEnd(lock, set, owner, till)
    local hash, ends = holderKeysOf(lock)
    local last = set.last
    set.last = math.max(last, till)
    if till + 1000 > set.lasts then
      set.lasts = till + 60000
      call('PEXPIREAT', hash, format('%.0f', set.lasts))
      call('PEXPIREAT', ends, format('%.0f', set.lasts))
    end
    if redis.pcall(unpack(lockOf(lock, set))).err then
      call('PEXPIREAT', lock, format('%.0f', set.last))
      call(unpack(lockOf(lock, set)))
    end
    call('ZADD', ends, format('%.0f', till), owner)
    if till < last then -- It may have been the last.
      set.last = lastOf(lock, set) or last
      call(unpack(lockOf(lock, set)))
    end
  end

  -- keepHold makes a keep of a hold, or sets the end of a keep.
  function keepHold(lock, set, owner, hold, till)
    hold.kept, hold.public = true, string.match(hold.public, '^%d+\n%d+\n')
    local hash = holderKeysOf(lock)
    call('HSET', hash, owner, textOf(hold, set.generation))
    setEnd(lock, set, owner, till)
  end

  -- prolongHold makes a hold last for ttl ms at least, and answers its owner with its tokens.
  function prolongHold(lock, set, owner, hold, ttl)
    setEnd(lock, set, owner, math.max(hold.ends, ms + ttl))
    return {'granted', hold.token, hold.tokens}
  end

  -- stepsBeside returns the commands that make a hold beside others, or the first of the holders, and
  -- their state then. A full server refuses the first of them.
  function stepsBeside(lock, owner, set, hold, till)
    local hash, ends = holderKeysOf(lock)
    local after = {
      generation = set.generation or format('%.0f', hold.token), count = (set.count or 0) + 1, slots = set.slots + (hold.limit > 0 and 1 or 0),
      last = math.max(set.last or 0, till), lasts = math.max(set.lasts or 0, till + 1000),
    }
    local steps = {}
    if not set.last and call('EXISTS', hash, ends) > 0 then -- of holders that are over
      steps[1] = {'DEL', hash, ends}
    end
    steps[#steps + 1] = {'HSET', hash, owner, textOf(hold, after.generation)}
    steps[#steps + 1] = {'ZADD', ends, format('%.0f', till), owner}
    set.whole = set.whole or not set.last or call('EXISTS', hash, ends) == 2
    if after.lasts ~= set.lasts or not set.whole then -- A key that is made anew has to expire.
      set.whole = true
      after.lasts = math.max(after.lasts, till + 60000)
      steps[#steps + 1] = {'PEXPIREAT', hash, format('%.0f', after.lasts)}
      steps[#steps + 1] = {'PEXPIREAT', ends, format('%.0f', after.lasts)}
    end
    table.insert(steps, set.last and #steps + 1 or 1, lockOf(lock, after))
    return steps, after
  end

  -- remove undoes what stepsBeside has done, or a part of it, which does not include the lock beside
  -- others unless `all` is set. It returns false if it fails.
  function remove(lock, owner, set, all)
    local hash, ends = holderKeysOf(lock)
    local undo = {{'DEL', lock, hash, ends}}
    if set.last then
      undo = {{'HDEL', hash, owner}, {'ZREM', ends, owner}, all and lockOf(lock, set) or nil}
    end
    for _, step in ipairs(undo) do
      local reply = redis.pcall(unpack(step))
      if type(reply) == 'table' and reply.err then
        return false
      end
    end
    return true
  end

  -- describeHold describes a hold or keep as describe does, with room for what answer adds, and with
  -- its limit.
  local function describeHold(hold)
    local text = format('%.0f\n', hold.token) .. hold.public
    return {hold.kept and 'kept' or 'held', hold.ends - ms, hold.ends, text, 0, 0, hold.limit}
  end

  -- allOf returns all holds and keeps of a lock with this value, oldest first, or nil if it has another
  -- kind of hold. Each has its owner.
  function allOf(lock, value)
    local generation, _, _, last = holdersIn(value)
    if not generation or tonumber(last) < ms then
      return nil
    end
    local hash, ends = holderKeysOf(lock)
    local all, till = {}, {}
    local list = call('ZRANGE', ends, 0, -1, 'WITHSCORES')
    for i = 1, #list, 2 do
      till[list[i]] = tonumber(list[i + 1])
    end
    list = call('HGETALL', hash)
    for i = 1, #list, 2 do
      local hold = readHold(list[i + 1], generation)
      if hold and (till[list[i]] or 0) >= ms then
        hold.owner, hold.ends = list[i], till[list[i]]
        all[#all + 1] = hold
      end
    end
    table.sort(all, function(a, b) return a.token < b.token end)
    return all
  end

  -- oldest describes the oldest of the holders, or of many holders that whose end is next. It returns
  -- nil if none is known.
  function oldest(lock, value)
    local generation, count = holdersIn(value)
    if not generation then
      return nil
    end
    local hold
    if tonumber(count) <= 32 then
      hold = allOf(lock, value)[1]
    else
      local _, ends = holderKeysOf(lock)
      hold = holdOf(lock, {generation = generation, last = 0}, call('ZRANGE', ends, 0, 0)[1] or '')
    end
    return hold and describeHold(hold)
  end

  -- describeAll describes holds: the first, with the others behind. It returns nil if there are none.
  function describeAll(holds)
    local all = {}
    for i, hold in ipairs(holds) do
      all[i] = describeHold(hold)
    end
    local words = table.remove(all, 1)
    if words then
      words[8] = all
    end
    return words
  end
end

-- fits reports whether a hold with these terms may be beside the holders.
local function fits(set, terms)
  if not set.last then
    return true
  end
  return not set.exclusive and terms.limit ~= 0 and (terms.limit < 0 or set.slots < terms.limit)
end

-- holdersOf returns the state of the holders of a lock with this value, whose field `last` is nil if
-- there are none; or nil if the lock has another kind of hold. It drops those that are over.
local function holdersOf(lock, value)
  if not value then
    return {slots = 0}
  end
  local generation, count, slots, last, lasts = holdersIn(value)
  if not generation or tonumber(last) < ms then
    return nil
  end
  defineHolders()
  return stateOf(lock, generation, count, slots, last, lasts)
end

-- find returns the state of the holders of a lock with this value, as holdersOf does, and the hold or
-- keep of an owner among them. A user without the rights for them has no such hold, and the lock has
-- another kind of hold for it, since it needs none of these rights for exclusive holds.
local function find(lock, value, owner)
  if not holdersIn(value) then
    return holdersOf(lock, value)
  end
  local done, set, hold = pcall(function()
    local set = holdersOf(lock, value)
    return set, set and holdOf(lock, set, owner)
  end)
  if done then
    return set, hold
  end
  local text = type(set) == 'table' and set.err or tostring(set)
  for _, refusal in ipairs({'NOPERM', 'ACL failure', "can't run this command"}) do
    if string.find(text, refusal, 1, true) then
      return nil
    end
  end
  error(set, 0)
end
