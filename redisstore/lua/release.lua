-- Ends entries. ARGV: how many ms to keep the name or 0; of each the owner. Answers 1 if there was
-- an entry, else 0.
local keep = ARGV[3]
local alone = call('EXISTS', unpack(KEYS, shared + locks + 1, shared + 2 * locks)) == 0 -- None has a queue.

local function usual(lock, queue, _, a)
  local value, owner = redis.pcall('GET', lock), ARGV[a + 1]
  if type(value) == 'string' and string.sub(value, 1, #owner + 1) == owner .. '\n' and (alone or call('EXISTS', queue) == 0) then
    call('DEL', lock)
    return 1
  end
end

if keep == '0' and run(usual, 1) then
  return answers
end
-- queue.lua
local function release(lock, queue, entries, a)
  local s, owner = load(lock, queue, entries), ARGV[a + 1]
  local kept = 'released:' .. redis.sha1hex(owner)
  if not s.hold or s.hold.owner ~= owner then
    settle(s, owner)
  end
  local e = entryOf(s, owner) or entryOf(s, kept)
  if not e or e.kind == 'k' and keep == '0' then
    return 0
  elseif e.kind ~= 'p' and keep ~= '0' then
    e.kind, e.ends = 'k', ms + keep
    if e == s.hold then
      e.owner = kept
      hold(s, e)
    else
      put(s, e)
      write('ZADD', queue, format('%d', -e.ends), owner)
      save(s)
    end
    return 1
  elseif e == s.hold then
    write('DEL', lock)
    s.n, s.least, s.hold = 0, unlimited, nil
  else
    forget(s, owner, e)
    if e.kind == 'h' then
      save(s)
    end
  end
  settle(s)
  return keep == '0' and 1 or 0
end

return run(release, 1)
