-- Prolongs entries. What all have in common: for how many ms, and the channel of the client, which is
-- another than that of Acquire after an Adopt. Of each: owner, token or 0. Answers {what it is, token}.
local ttl, channel = match(common, '^(%d+) (.*)$')

-- include queue.lua

local function verb(lock, queue, entries, owner, token)
  local value = redis.pcall('GET', lock)
  if type(value) ~= 'string' or sub(value, 1, #owner + 1) ~= owner .. '\n' then
    call('ZREM', queue, '') -- It changes nothing. After it a full server lets the run write.
    local s = load(lock, queue, entries)
    s:settle(owner)
    local e = s:entryOf(owner)
    if not e or e.kind == 'k' or token ~= '0' and tonumber(token) ~= e.token then
      return {'lost', 0}
    elseif e ~= s.hold then
      e.ends, e.rest = math.max(ms + ttl, e.ends), match(e.rest, '^%d+ ') .. channel .. match(e.rest, '\n.*$')
      s:put(e)
      if e.kind == 'h' then
        call('ZADD', queue, format('%d', -e.ends), owner)
        s:save()
      end
      return {e.kind == 'h' and 'held' or 'waiting', e.token}
    end
    value = call('GET', lock) -- It holds alone from now on.
  end
  local has, tokens, was, public = match(value, '^(%d+) (%d+) ([^\n]*)(\n.*)$', #owner + 2)
  if not has or token ~= '0' and token ~= has then
    return {'lost', 0}
  end
  call('PEXPIRE', lock, format('%d', math.max(call('PTTL', lock), ttl))) -- A replica refuses it, and WAIT confirms it.
  master, wrote = true, true
  if was ~= channel then -- After a write a full server lets the run write more.
    call('SET', lock, owner .. '\n' .. has .. ' ' .. tokens .. ' ' .. channel .. public, 'KEEPTTL')
  end
  return {'held', tonumber(has)}
end
