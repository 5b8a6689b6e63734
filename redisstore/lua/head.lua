-- What all scripts begin with. Each is head.lua, queue.lua, the function `verb` of its own file,
-- and tail.lua, which calls it for each lock.
--
-- KEYS: the counter, the tokens ahead of it, with a restart guard its marker; then all locks, their
-- queues, and their entries. keys.go describes them. ARGV: '0', or the guard in ms and the
-- replicas; how many locks there are; the channel of the client; what the calls have in
-- common; then those of each lock.
local call, format, match, sub = redis.call, string.format, string.match, string.sub
local guard, replicas, locks, channel, common = 0, 0, tonumber(ARGV[2]), ARGV[3], ARGV[4]
local shared = 2 -- how many keys are before those of the locks
if ARGV[1] ~= '0' then
  guard, replicas = match(ARGV[1], '^(%d+) (%d+)$')
  guard, replicas = tonumber(guard), tonumber(replicas)
  shared = guard > 0 and 3 or 2
end
local now, clock, ms -- the server's time: the answer to TIME, and it in µs and ms, once it is read
local wrote = false -- whether something of the lock was changed
local told = {} -- the notices

local function readClock()
  now = call('TIME')
  clock, ms = now[1] * 1000000 + now[2], now[1] * 1000 + math.floor(now[2] / 1000)
end
