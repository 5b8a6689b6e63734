-- Ends holds. With a time to keep the name the lock stays, with a value that
-- its owner cannot renew, and that only this owner can have left there.
--
-- KEYS: lock and record of each. ARGV: owner, and ms to keep the name or 0, of
-- each.
-- Answers for each 1, 0 if the owner does not hold the lock, or {'corrupt'}.
--
-- The commands that compare and delete by themselves (DELEX of Redis 8.4, DELIFEQ
-- of Valkey 9) would save nothing: the record must go as well, in the same step
-- and only with the lock, and a batch of releases is one command so.
local call = redis.call

-- special answers where the owner does not hold the lock, or wants it kept.
local function special(lock, record, owner, keep, value)
  if value and type(value) ~= 'string' then
    return {'corrupt'}
  end
  if keep == '0' then
    return 0
  end
  local mark = 'released:' .. redis.sha1hex(owner)
  if value ~= owner and value ~= mark then
    return 0
  end
  call('SET', lock, mark, 'PX', keep)
  call('DEL', record)
  return 1
end

local answers, count = {}, 0
for i = 1, #KEYS, 2 do
  local lock, record, owner, keep = KEYS[i], KEYS[i + 1], ARGV[i], ARGV[i + 1]
  local value, answer = redis.pcall('GET', lock), 1
  if value == owner and keep == '0' then
    call('DEL', lock, record)
  else
    answer = special(lock, record, owner, keep, value)
  end
  count = count + 1
  answers[count] = answer
end
return answers
