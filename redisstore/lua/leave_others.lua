-- The usual case of the release of a hold that tolerates others, behind fast_release.lua: it has not
-- run out, other holders stay, and nobody waits. release.lua has the other cases and reports what
-- has failed; holders.lua describes the keys.
if before > 0 then
  local base, now = string.sub(KEYS[1], 1, -8), nil
  for i, seen in pairs(others) do
    local lock, owner = KEYS[before + i], ARGV[i + 1]
    local value, text
    if type(seen) == 'string' and string.sub(seen, 1, 7) == 'shared:' and ARGV[rest + step * (i - 1)] == '0'
        and redis.pcall('EXISTS', base .. 'queue\31' .. lock, base .. 'interests\31' .. lock) == 0 then
      value, text = redis.pcall('GET', lock), redis.pcall('HGET', base .. 'holders\31' .. lock, owner)
    end
    if type(value) == 'string' and type(text) == 'string' then
      local generation, count, weights, last, lasts = string.match(value, '^shared:(%d+) (%d+) (%d+) (%d+) (%d+)$')
      local of, weight = string.match(text, '^(%d+) %d+ %d+ %-?%d+ (%d+) 0\n')
      local ends = base .. 'ends\31' .. lock
      local two, till, stay = redis.pcall('ZRANGE', ends, '-2', '-1', 'WITHSCORES'), nil, last
      if two[3] ~= owner then
        till = redis.pcall('ZSCORE', ends, owner)
      elseif redis.pcall('ZCARD', ends) == tonumber(count) then -- Else holders are missing.
        till, stay = two[4], two[2]
      end
      now = now or redis.pcall('TIME')
      local ms = now[1] and now[1] * 1000 + math.floor(now[2] / 1000)
      if of and of == generation and count ~= '1' and ms and type(till) == 'string' and tonumber(till) >= ms and tonumber(stay) >= ms
          and redis.pcall('HDEL', base .. 'holders\31' .. lock, owner) == 1 then
        -- From here on nothing fails: the lock lasts until its end if it cannot be written.
        redis.pcall('ZREM', ends, owner)
        local head = 'shared:' .. generation .. string.format(' %.0f %.0f ', count - 1, weights - weight) .. stay .. ' ' .. lasts
        redis.pcall('SET', lock, head, 'PXAT', stay)
        others[i] = nil
      end
    end
  end
  if not next(others) then
    return 1
  end
end
