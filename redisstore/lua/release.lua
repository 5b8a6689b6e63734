-- Ends holds and places. With a time to keep the name the lock stays, with a value that
-- its owner cannot renew, and that only this owner can have left there.
--
-- KEYS and the first argument: as for acquire.lua, or only the locks and 0. ARGV: owner with a line
-- break of each; ms to keep the name or 0, of all or of each. Answers for each 1; 0 if the owner
-- has neither; or {'failed', why}.
--
-- The commands that compare and delete by themselves (DELEX of Redis 8.4, DELIFEQ
-- of Valkey 9) compare a whole value, of which the owner is the first line.

local function release(lock, owner, keep)
  local value = read(lock)
  local own, marked = tokenOf(value, owner)
  if own and keep == '0' then
    if marked then
      free(lock)
    else
      call('DEL', lock)
    end
    return 1
  end
  local kept = 'released:' .. redis.sha1hex(owner)
  if own or keep ~= '0' and value == kept then
    call('SET', lock, kept, 'PX', keep)
    quietly(notifyFirst, lock)
    return 1
  end
  local set, hold = find(lock, value, owner)
  local ended = hold and (keep ~= '0' or not hold.kept)
  local hadPlace
  if ended and keep == '0' then
    drop(lock, set, {owner})
    quietly(settle, lock, set)
  elseif ended then
    keepHold(lock, set, owner, hold, ms + keep)
    quietly(settle, lock, set)
    quietly(notifyFirst, lock)
  else
    hadPlace = leave(lock, owner)
    if set then
      quietly(settle, lock, set)
    elseif hadPlace and describe(value, lock)[1] == 'foreign' then
      quietly(notifyFirst, lock) -- It has to try at intervals, and may not be the first until now.
    end
  end
  return (ended or hadPlace and keep == '0') and 1 or 0
end

local answers, rest = {}, #KEYS - before + 2 -- here is the first time to keep a name
local step = #ARGV > rest and 1 or 0 -- to the next
for i = 1, #KEYS - before do
  answers[i] = attempt(release, KEYS[before + i], ARGV[i + 1], ARGV[rest + step * (i - 1)])
end
return answers
