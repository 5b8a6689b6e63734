-- Ends entries. What all have in common: how many ms to keep the name, or 0. Of each: owner. Answers
-- 1 if there was an entry, else 0.
local keep = common
local alone = keep == '0' and call('EXISTS', unpack(KEYS, locks + 1, 2 * locks)) == 0 -- None has a queue.
for i = 1, keep == '0' and guard == '0' and locks or 0 do
  local lock, value = KEYS[i], (alone or locks > 1 and call('EXISTS', KEYS[locks + i]) == 0) and redis.pcall('GET', KEYS[i])
  if type(value) == 'string' and string.find(value, ARGV[1 + i] .. '\n', 1, true) == 1 and redis.pcall('DEL', lock) == 1 then
    answers[i], answered = 1, answered + 1
  end
end
if answered == locks then
  return answers
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
