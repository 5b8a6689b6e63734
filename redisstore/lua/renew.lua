-- Prolongs entries. ARGV: the channel of the client, which is another than that of Acquire after an
-- Adopt, and ms; of each owner and token or 0. Answers {what it is, token}.
local channel, ttl = ARGV[3], tonumber(ARGV[4])

local function usual(lock, _, _, a)
  local value, owner, token = redis.pcall('GET', lock), ARGV[a + 1], ARGV[a + 2]
  if type(value) ~= 'string' or string.sub(value, 1, #owner + 1) ~= owner .. '\n' then
    return nil
  end
  local has, tokens, was, public = match(value, '^(%d+) (%d+) ([^\n]*)(\n.*)$', #owner + 2)
  if not has or token ~= '0' and token ~= has then
    return {'lost', 0}
  elseif was ~= channel then
    call('SET', lock, owner .. '\n' .. has .. ' ' .. tokens .. ' ' .. channel .. public, 'KEEPTTL')
    wrote = true
  end
  local left = call('PTTL', lock)
  if left < ttl or replicas > 0 then -- WAIT confirms a write only.
    call('PEXPIRE', lock, format('%d', math.max(left, ttl)))
  end
  return {'held', tonumber(has)}
end

if run(usual, 2) then
  return answers
end
-- queue.lua
local function renew(lock, queue, entries, a)
  local s, owner, token = load(lock, queue, entries), ARGV[a + 1], tonumber(ARGV[a + 2])
  settle(s, owner)
  local e = entryOf(s, owner)
  if not e or e.kind == 'k' or token ~= 0 and token ~= e.token then
    return {'lost', 0}
  elseif e == s.hold then
    return usual(lock, queue, entries, a)
  end
  local rest = match(e.rest, '^%d+ ') .. channel .. match(e.rest, '\n.*$')
  if ms + ttl > e.ends or rest ~= e.rest or replicas > 0 then
    e.ends, e.rest = math.max(ms + ttl, e.ends), rest
    put(s, e)
    if e.kind == 'h' then
      write('ZADD', queue, format('%d', -e.ends), owner)
      save(s)
    end
  end
  return {e.kind == 'h' and 'held' or 'waiting', e.token}
end

return run(renew, 2)
