-- Ends holds. With a time to keep the name the lock stays, with a value that
-- its owner cannot renew, and that only this owner can have left there.
--
-- KEYS: the locks. ARGV: owner with a line break of each; ms to keep the name or 0,
-- of all or of each.
-- Answers for each 1, 0 if the owner does not hold the lock, or {'failed', why}.
--
-- The commands that compare and delete by themselves (DELEX of Redis 8.4, DELIFEQ
-- of Valkey 9) compare a whole value, of which the owner is the first line; and a
-- batch of releases is one command so.
local call = redis.call

-- special answers where the owner does not hold the lock, or wants it kept.
local function special(lock, owner, keep, value)
  if type(value) ~= 'string' then
    unread(value, 'GETRANGE', lock, '0', '0')
    return 0
  end
  if keep == '0' then
    return 0
  end
  local mark = 'released:' .. redis.sha1hex(owner)
  if value ~= owner and call('GET', lock) ~= mark then
    return 0
  end
  call('SET', lock, mark, 'PX', keep)
  return 1
end

local answers = {}
for i, lock in ipairs(KEYS) do
  answers[i] = others[i] and attempt(special, lock, ARGV[i], ARGV[rest + step * (i - 1)], others[i]) or 1
end
return answers
