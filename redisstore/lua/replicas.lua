-- missing returns why a grant would not be confirmed by this many replicas, or nil if
-- they are connected. A replica that works reports each second. One that has not for
-- more than ten, the default of min-replicas-max-lag, does not count: on a busy machine a
-- replica that works can be silent for a few. INFO counts in whole seconds of a clock that
-- can be a tick behind the one that stamps a report, and then shows a lag of -1.
local function missing(wanted)
  local online = 0
  for lag in string.gmatch(redis.call('INFO', 'replication'), 'state=online[^\r\n]*lag=(%-?%d+)') do
    online = online + (tonumber(lag) <= 10 and 1 or 0)
  end
  if online < wanted then
    return 'NOREPLICAS ' .. online .. ' replicas are connected, want ' .. wanted .. ' (MinReplicas)'
  end
end
