-- Prolongs entries. ARGV: the channel of the client, which is another than that of Acquire after an
-- Adopt; of each owner, token or 0, and ms. Answers {what it is, token}.
local function renew(s, owner, token, ttl)
  local value = redis.pcall('GET', s.lock)
  if type(value) == 'string' and string.sub(value, 1, #owner + 1) == owner .. '\n' then
    load(s)
  else
    settled(s, owner)
  end
  local e = s.hold and s.hold.owner == owner and s.hold or entryOf(s, owner)
  if not e or e.kind == 'k' or token ~= '0' and tonumber(token) ~= e.token then
    return {'lost', 0}
  end
  local ends, moved = ms + ttl, e.channel ~= ARGV[2]
  e.channel = ARGV[2]
  if e == s.hold then
    if moved then
      write('SET', s.lock, text(owner, e), 'KEEPTTL')
    end
    local left = call('PTTL', s.lock)
    if left < tonumber(ttl) or replicas > 0 then -- WAIT confirms a write only.
      write('PEXPIRE', s.lock, format('%.0f', math.max(left, tonumber(ttl))))
    end
    return {'held', e.token}
  end
  if ends > e.ends or moved or replicas > 0 then
    ends = math.max(ends, e.ends)
    e.ends = ends
    put(s, e)
    if e.kind == 'h' then
      write('ZADD', s.holders, format('%.0f', ends), owner)
      save(s)
    end
    outlast(ends, s.entries, e.kind == 'h' and s.holders or s.queue)
  end
  if e.kind == 'p' and bar and bar[3] == 1 then
    return bar -- The client reads the setting and asks again.
  end
  return {e.kind == 'h' and 'held' or 'waiting', e.token}
end

return run(renew, 3)
