-- A script is a line that sets `offset`, how many keys are before those of the locks; head.lua; the
-- file of its verb with queue.lua in it; and tail.lua, which calls the function `verb` for each lock
-- that has no answer yet. The file of a verb does and answers the usual case itself, at its top: to
-- make the functions of queue.lua takes longer than that.
--
-- KEYS: of Acquire, the counter and the tokens ahead of it; then all locks, their queues, and their
-- entries; last, with a restart guard, its marker. keys.go describes them. ARGV: what the calls of
-- this run have in common: guard in ms, replicas, and what the verb's file says; then each lock's
-- words.
local call, format, match, sub = redis.call, string.format, string.match, string.sub
local guard, replicas, common = match(ARGV[1], '^(%d+) (%d+) (.*)$')
local locks = math.floor((#KEYS - offset) / 3)
local args = (#ARGV - 1) / locks -- of each lock
local answers, answered = {}, 0 -- by lock, and how many there are
local now, clock, ms -- the server's time: the answer to TIME, and it in µs and ms, once it is read
local wrote, master -- whether something of the lock was changed, and whether a write has shown that this is a master
local replication = '' -- what INFO says of it, with a guard or replicas
local told = {} -- the notices
