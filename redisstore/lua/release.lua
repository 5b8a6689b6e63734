-- Ends entries. What all have in common: how many ms to keep the name, or 0. Of each: owner. Answers
-- 1 if there was an entry, else 0.
local guard, replicas, keep = match(ARGV[1], '^(%d+) (%d+) (%d+)')
if keep == '0' then
  local alone = call('EXISTS', unpack(KEYS, shared + locks + 1, shared + 2 * locks)) == 0 -- None has a queue.
  local values, mine = (alone or locks > 1) and redis.pcall('MGET', unpack(KEYS, shared + 1, shared + locks)) or {}, {}
  for i = 1, locks do
    local lock, owner, value = KEYS[shared + i], ARGV[1 + i], values[i]
    if value and sub(value, 1, #owner + 1) == owner .. '\n' and not mine[lock] and
      (alone or locks > 1 and call('EXISTS', KEYS[shared + locks + i]) == 0) then
      answers[i], answered, mine[lock] = 1, answered + 1, true
      mine[answered] = lock
    end
  end
  if answered > 0 and redis.pcall('DEL', unpack(mine)) ~= answered then
    answers, answered = {}, 0 -- It has deleted none of them.
  end
  if answered == locks then
    return answers
  end
end

-- include queue.lua

keep = tonumber(keep)

local function verb(lock, queue, entries, owner)
  local s = load(lock, queue, entries)
  s:settle(owner)
  local e = s:entryOf(owner) or s:entryOf('released:' .. redis.sha1hex(owner))
  if not e or e.kind == 'k' and keep == 0 then
    return 0
  elseif e.kind ~= 'p' and keep > 0 then
    e.kind, e.ends = 'k', ms + keep
    if e == s.hold then
      e.owner = 'released:' .. redis.sha1hex(owner)
      s:setHold(e)
    else
      s:put(e)
      call('ZADD', queue, format('%d', -e.ends), owner)
      s:save()
    end
    return 1
  elseif e == s.hold then
    s:drop()
  else
    s:forget(owner, e)
    if e.kind == 'h' then
      s:save()
    end
  end
  s:settle()
  return keep == 0 and 1 or 0
end
