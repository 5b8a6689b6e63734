-- abstains returns for how many ms this server must not grant locks. The marker
-- names the reign in which locks were granted last: the run of the server, and the
-- history of its data, whose name changes whenever the server becomes a master. If
-- the marker names another reign, or is gone, this server may have forgotten locks,
-- and abstains until they must have run out. A replica that can be written to
-- grants nothing: its master takes everything back.
--
-- The history of a master also gets a new name when its first replica attaches, and
-- when there was no replica for repl-backlog-ttl. Nothing is forgotten then. Both clear
-- the former name, master_replid2, which a promotion sets, and which stays for
-- repl-backlog-ttl at least. If that is not shorter than the guard, such a change does
-- not make the server abstain. A script cannot read the setting: kept is 'yes' or 'no',
-- or '?' before the client has read it; then the second result is true where it counts.
-- A master without a backlog that becomes a replica, is promoted before it has
-- synchronized, and then gets a replica does not keep the name that long. Therefore the
-- marker also has the number of commands that can have made the server a replica.
local function demotions()
  local stats, n = redis.call('INFO', 'commandstats'), 0
  for _, name in ipairs({'replicaof', 'slaveof', 'failover'}) do
    n = n + tonumber(string.match(stats, 'cmdstat_' .. name .. ':calls=(%d+)') or 0)
  end
  return string.find(stats, 'cmdstat_', 1, true) and string.format('%.0f', n) or 'unknown'
end

local function abstains(marker, guard, kept, now)
  local replication = redis.call('INFO', 'replication')
  if string.find(replication, 'role:slave', 1, true) then
    return nil
  end
  local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
  local reign = run .. (string.match(replication, 'master_replid:(%w+)') or '')
  local ms = now[1] * 1000 + math.floor(now[2] / 1000)
  local id, till, demoted = string.match(redis.call('GET', marker) or '', '^(%w+) (%d+) ?(%w*)$')
  local left = id and tonumber(till) - ms
  if not left or left > guard then -- If it is more, the clock was set back.
    left = guard
  elseif id == reign then
    return math.max(0, left)
  elseif string.sub(id, 1, #run) == run and kept ~= 'no' and string.find(replication, 'master_replid2:0+%s')
      and tonumber(demoted) and demoted == demotions() then
    if kept == '?' then
      return guard, true
    end
    left = math.max(0, left)
  else
    left = guard
  end
  redis.call('SET', marker, reign .. ' ' .. string.format('%.0f', ms + left) .. ' ' .. demotions())
  return left
end
