-- Does what acquire.lua does for locks that are held, and nothing for those that
-- are free. It has no keys but the locks: a node of a cluster runs it on one lock
-- while the slot is being moved, when it refuses scripts with several keys.
--
-- KEYS: the locks. ARGV: 0, and behind it whether replicas are to confirm (see acquire.lua); owner
-- with a line break of each; TTL in ms, of all or of each.
-- Answers for each the token of the hold if the owner has it already, or what is
-- known of the hold (see describe.lua), or nil if the lock is free, or has holders that tolerate
-- others: the owner may be one of them.
local answers, rest = {}, #KEYS + 2 -- here is the first TTL
local step = #ARGV > rest and 1 or 0 -- to the next
for i, lock in ipairs(KEYS) do
  local value = redis.pcall('GET', lock)
  answers[i] = again(value, lock, ARGV[i + 1], ARGV[rest + step * (i - 1)])
    or not holdersIn(value) and describe(value, lock)
end
return answers
