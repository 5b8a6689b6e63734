-- abstains returns for how many ms this server must not grant locks. The marker
-- names the run of the server which last granted some; if it is another one, or
-- is gone, this server may have forgotten locks, and abstains until they must
-- have run out.
local function abstains(marker, guard, now)
  local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
  local ms = now[1] * 1000 + math.floor(now[2] / 1000)
  local id, till = string.match(redis.call('GET', marker) or '', '^(%w+) (%d+)$')
  if id == run and tonumber(till) - ms <= guard then
    return math.max(0, tonumber(till) - ms)
  end
  redis.call('SET', marker, run .. ' ' .. string.format('%.0f', ms + guard))
  return guard
end
