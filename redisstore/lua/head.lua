-- What all scripts begin with. A verb handles its usual case first, a lock without places and
-- without holds beside each other. If that is the case of every lock, the script ends before the
-- functions of queue.lua are made, which takes longer than the usual case itself.
--
-- KEYS: the counter, the tokens ahead of it, with a restart guard its marker; then all locks, their
-- queues, and their entries. keys.go describes them. ARGV: '0', or the guard in ms and the
-- replicas; how many locks there are; then those of the verb, and of each lock.
local call, format, match = redis.call, string.format, string.match
local guard, replicas, locks, shared = 0, 0, tonumber(ARGV[2]), 2 -- so many keys are before those of the locks
if ARGV[1] ~= '0' then
  guard, replicas = match(ARGV[1], '^(%d+) (%d+)$')
  guard, replicas = tonumber(guard), tonumber(replicas)
  shared = guard > 0 and 3 or 2
end
local now, clock, ms -- the server's time: the answer to TIME, and it in µs and ms, once it is read
local wrote = false -- whether something of the lock was changed
local answers, told = {}, {} -- told has the notices

local function readClock()
  now = call('TIME')
  clock, ms = now[1] * 1000000 + now[2], now[1] * 1000 + math.floor(now[2] / 1000)
end

-- run runs a verb for each lock that has no answer, with its keys and the number of the argument
-- before its own, and sends the notices. It returns the answers if there are all. A failure
-- concerns one lock. Its answer is {'failed', 1 if something was changed, why}.
local function run(verb, args)
  local i, first, complete = 1, #ARGV - locks * args, true
  local function each()
    while i <= locks do
      if answers[i] == nil then
        local k = shared + i
        wrote = false
        answers[i] = verb(KEYS[k], KEYS[k + locks], KEYS[k + 2 * locks], first + args * (i - 1))
        complete = complete and answers[i] ~= nil
      end
      i = i + 1
    end
  end
  repeat
    local done, why = pcall(each)
    if not done then
      answers[i] = {'failed', wrote and 1 or 0, type(why) == 'table' and why.err or tostring(why)}
      i = i + 1
    end
  until done
  for _, notice in ipairs(told) do
    redis.pcall('PUBLISH', notice[1], notice[2])
  end
  return complete and answers
end
