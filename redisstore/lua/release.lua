-- Ends entries. What all have in common: how many ms to keep the name, or 0. Of each: owner. Answers
-- 1 if there was an entry, else 0.
local keep = tonumber(common)
local alone = keep == 0 and call('EXISTS', unpack(KEYS, shared + locks + 1, shared + 2 * locks)) == 0 -- None has a queue.

local function verb(lock, queue, entries, owner)
  local s
  local value = redis.pcall('GET', lock)
  local holds = type(value) == 'string' and sub(value, 1, #owner + 1) == owner .. '\n'
  if not holds or not alone and (keep > 0 or call('EXISTS', queue) == 1) then
    s = load(lock, queue, entries)
    local kept = 'released:' .. redis.sha1hex(owner)
    if not holds then
      s:settle(owner)
    end
    local e = s:entryOf(owner) or s:entryOf(kept)
    if not e or e.kind == 'k' and keep == 0 then
      return 0
    elseif e.kind ~= 'p' and keep > 0 then
      e.kind, e.ends = 'k', ms + keep
      if e == s.hold then
        e.owner = kept
        s:setHold(e)
      else
        s:put(e)
        call('ZADD', queue, format('%d', -e.ends), owner)
        s:save()
      end
      return 1
    elseif e ~= s.hold then
      s:forget(owner, e)
      if e.kind == 'h' then
        s:save()
      end
      s:settle()
      return keep == 0 and 1 or 0
    end
  end
  if s then
    s:drop()
    s:settle()
  else
    call('DEL', lock)
  end
  return 1
end
