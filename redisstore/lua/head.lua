-- What all scripts begin with. Each is head.lua, the file of its verb with queue.lua in it, and
-- tail.lua, which calls the function `verb` for each lock. What is usual is done, and returned,
-- before any function is made: to make them takes longer than most runs.
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
local answers, answered = {}, 0 -- by lock, and how many there are
local failures = {} -- by lock, of those that were not answered
local now, clock, ms -- the server's time: the answer to TIME, and it in µs and ms, once it is read
local wrote = false -- whether something of the lock was changed
local told = {} -- the notices
