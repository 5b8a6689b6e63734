-- The usual case of holds that tolerate others, behind acquire.lua: the lock is free or has holders
-- beside which there is room, nobody waits, and any token will do. contended.lua has the other cases
-- and reports what has failed; holders.lua describes the keys.
local ms, joined = seconds * 1000 + math.floor(now[2] / 1000), nil -- joined is the last token granted
local base = string.sub(counter, 1, -8)
for i, lock in pairs(refused) do
  local most, weight = string.match(ARGV[2 * i + 1], '^0 1 (%-?%d+) (%d+)$')
  if most and said <= maxToken and names == 0 and not (lined and lined[lock]) then
    local more, owner, value = rest + step * (i - 1), ARGV[2 * i], redis.pcall('GET', lock)
    local generation, of, weights, last, lasts =
      string.match(type(value) == 'string' and value or '', '^shared:(%d+) (%d+) (%d+) (%d+) (%d+)$')
    local hash, ends = base .. 'holders\31' .. lock, base .. 'ends\31' .. lock
    local till = ms + ARGV[more]
    local ended = till .. '' -- Numbers of 14 digits keep all of them.
    local text = micros < 1000000 and seconds .. format('%06d', micros) or format('%.0f', said)
    local public = begin .. ARGV[more + 2]
    local granted = false
    if not value then
      local kept = till + 60000 .. ''
      local steps = {
        {'SET', lock, 'shared:' .. text .. ' 1 ' .. weight .. ' ' .. ended .. ' ' .. kept, 'PXAT', ended},
        {'DEL', hash, ends},
        {'HSET', hash, owner, text .. ' ' .. text .. ' 1 ' .. most .. ' ' .. weight .. ' 0' .. public},
        {'ZADD', ends, ended, owner},
        {'PEXPIREAT', hash, kept},
        {'PEXPIREAT', ends, kept},
      }
      local done, reply = 0, nil
      repeat
        reply = redis.pcall(unpack(steps[done + 1]))
        granted = not (type(reply) == 'table' and reply.err)
        done = done + 1
      until not granted or done == #steps
      if not granted and done > 1 then
        redis.pcall('DEL', lock, hash, ends)
      end
    elseif generation and tonumber(last) >= ms and tonumber(lasts) >= till + 1000
        and (tonumber(most) < 0 or weights + weight <= tonumber(most))
        and redis.pcall('EXISTS', hash, ends) == 2 -- Else some are missing, and have to expire once made.
        and redis.pcall('HSETNX', hash, owner, generation .. ' ' .. text .. ' 1 ' .. most .. ' ' .. weight .. ' 0' .. public) == 1 then
      last = till > tonumber(last) and ended or last
      local head = 'shared:' .. generation .. ' ' .. of + 1 .. ' ' .. weights + weight .. ' ' .. last .. ' ' .. lasts
      granted = redis.pcall('ZADD', ends, ended, owner) == 1 and not redis.pcall('SET', lock, head, 'PXAT', last).err
      if not granted then
        redis.pcall('HDEL', hash, owner)
        redis.pcall('ZREM', ends, owner)
      end
    end
    if granted then
      answers[i], refused[i], joined, said, micros = said, nil, text, said + 1, micros + 1
    end
  end
end
if joined then
  call('SET', counter, joined)
end
if not next(refused) then
  return answers
end
