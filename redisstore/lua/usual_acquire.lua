-- The usual case of acquire.lua, which comes behind it: no guard, no floors, no
-- tokens ahead of the counter, and a clock ahead of it. It has no functions, since
-- to define those of the rest takes longer than to grant a lock.
--
-- Answers, if all are granted, the first token as a number: that of each lock that
-- follows is greater by one. Else the rest goes on, for the locks that are refused.
local clock, refused
if ARGV[1] == '0' and ARGV[2] == '0' and redis.call('ZCARD', KEYS[2]) == 0 then
  local call, format = redis.call, string.format
  local last, now = call('GET', KEYS[1]), call('TIME')
  local seconds, micros = now[1], tonumber(now[2])
  clock = seconds * 1000000 + micros
  if (tonumber(last or 0) or clock) < clock
      and micros + #KEYS < 1000000 and clock + #KEYS < 9007199254740991 then
    local begin = '\n' .. seconds .. '\n' .. now[2] .. '\n'
    local issued
    for key = 3, #KEYS do
      local token, arg = seconds .. format('%06d', micros), 4 * key - 9
      if call('SET', KEYS[key], ARGV[arg] .. token .. begin .. ARGV[arg + 3], 'NX', 'PX', ARGV[arg + 1]) then
        issued, micros = token, micros + 1
      else
        refused = refused or {}
        refused[key] = true
      end
    end
    if issued then
      call('SET', KEYS[1], issued)
    end
    if not refused then
      return clock
    end
  end
end
