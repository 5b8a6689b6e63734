-- A function for the scripts that this text is put in front of.

-- prolong makes a lock last for ttl ms at least. If replicas are to confirm it writes even
-- where the lock lasts that long already: WAIT concerns nothing but what its
-- connection has written. PEXPIRE does so with full memory, too, where SET fails. Where the clock
-- moves on within the script, as in Redis 6, the end moves with it.
local always = string.find(ARGV[1], ' [1-9]%d*$') ~= nil -- See acquire.lua: how many replicas.
local function prolong(lock, ttl)
  local left = redis.call('PTTL', lock)
  if left >= 0 and left < tonumber(ttl) then
    redis.call('PEXPIRE', lock, ttl)
  elseif always and left >= 0 then
    redis.call('PEXPIRE', lock, left)
  elseif always then
    redis.call('SET', lock, redis.call('GET', lock), 'KEEPTTL')
  end
end
