-- Ends entries. ARGV: of each owner, and how many ms to keep the name or 0. Answers 1 if there was
-- an entry, else 0.
local function release(s, owner, keep)
  local value = redis.pcall('GET', s.lock)
  local mine = type(value) == 'string' and string.sub(value, 1, #owner + 1) == owner .. '\n'
  if mine and keep == '0' then
    write('DEL', s.lock)
    if call('EXISTS', s.queue) == 1 then
      pcall(settled, s)
    end
    return 1
  end
  settled(s, owner)
  local kept = 'released:' .. redis.sha1hex(owner)
  local e = s.hold
  if e and (e.owner == owner or e.owner == kept) then
    if keep == '0' then
      if e.owner == kept then
        return 0
      end
      write('DEL', s.lock)
      s.n, s.least, s.hold = 0, shared, nil
      pcall(settle, s)
      return 1
    end
    write('SET', s.lock, text(kept, e), 'PX', keep)
    return 1
  end
  e = entryOf(s, owner)
  if not e or e.kind == 'k' and keep == '0' then
    return 0
  elseif e.kind == 'p' then
    write('ZREM', s.queue, owner)
    call('HDEL', s.entries, owner)
  elseif keep == '0' then
    forget(s, owner, e)
    save(s)
  else
    e.kind, e.ends = 'k', ms + keep
    put(s, e)
    write('ZADD', s.holders, format('%.0f', e.ends), owner)
    save(s)
    return 1
  end
  pcall(settle, s)
  return keep == '0' and 1 or 0
end

return run(release, 2)
