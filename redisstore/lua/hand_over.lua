-- The usual case of the release of a lock that has a queue, behind fast_release.lua: the first in
-- line wants it for itself, its client listens, and any token will do. release.lua has the other
-- cases; queue.lua describes places, and settles by the same rule for all of them. What others has
-- of a lock is still so, since a run has each lock once.
if before > 0 and #ARGV[1] == 1 then
  local base, now = string.sub(KEYS[1], 1, -8), nil
  for i, seen in pairs(others) do
    local lock, owner, first, place = KEYS[before + i], ARGV[i + 1], nil, nil
    local queue, places = base .. 'queue\31' .. lock, base .. 'places\31' .. lock
    if seen == string.sub(owner, 1, -2) .. '\31' and ARGV[rest + step * (i - 1)] == '0'
        and redis.pcall('EXISTS', KEYS[2], base .. 'interests\31' .. lock) == 0 then
      first = redis.pcall('ZRANGE', queue, '0', '1', 'WITHSCORES')
      place = first[1] and tonumber(first[2]) < 4503599627370496 and redis.pcall('HGET', places, first[1])
    end
    if type(place) == 'string' then
      local ends, reach, id, public = string.match(place, '^(%d+) ([PS])(%w+) [01] 0(\n.*)$')
      local last, sharded, counts = redis.pcall('GET', KEYS[1]), reach == 'S', nil
      now = now or redis.pcall('TIME')
      if ends and not now.err and tonumber(ends) > now[1] * 1000 + math.floor(now[2] / 1000) then
        counts = redis.pcall('PUBSUB', sharded and 'SHARDNUMSUB' or 'NUMSUB', base .. 'notices\31' .. id)
      end
      if counts and not counts.err and counts[2] > 0 and tonumber(last or 0) then
        local number = math.max(now[1] * 1000000 + now[2], (last or 0) + 1)
        local token = string.format('%.0f', number)
        local head = string.sub(first[1], 1, -2) .. (first[3] and '\31\n' or '\n') .. token .. '\n' .. now[1] .. '\n' .. now[2]
        if number <= 9007199254740991 and not redis.pcall('SET', KEYS[1], token).err
            and not redis.pcall('SET', lock, head .. public, 'PXAT', string.format('%.0f', ends - 1)).err then
          if redis.pcall('ZREM', queue, first[1]) == 1 then
            redis.pcall('HDEL', places, first[1])
            redis.pcall(sharded and 'SPUBLISH' or 'PUBLISH', base .. 'notices\31' .. id, token .. '\n1\n' .. first[1] .. lock)
          else
            redis.call('DEL', lock)
          end
          others[i] = nil
        end
      end
    end
  end
  if not next(others) then
    return 1
  end
end
