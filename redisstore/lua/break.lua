-- Ends whatever holds and keeps there are of locks, or only the one with a token. Answers what is
-- known of them (see describe.lua, and describeAll in holders.lua), or nil if a lock is free or has
-- another token or none, or {'type', type} for a key that is no string: it may be data of an
-- application, and is left alone.
--
-- KEYS and the first argument: as for acquire.lua, or only the locks and 0. ARGV: token with a line
-- break of each, or an empty string for any hold.

-- breakHolders ends holds and keeps of holders that tolerate each other, whose state is `set`: the
-- one with a token, or all, with those that are not known.
local function breakHolders(lock, value, set, token)
  local owners, broken, others = {}, {}, false
  for _, hold in ipairs(set.last and allOf(lock, value) or {}) do
    if not token or hold.token == token then
      owners[#owners + 1], broken[#broken + 1] = hold.owner, hold
    end
  end
  if #owners > 0 then
    drop(lock, set, owners)
  end
  if set.last and not token then
    others = describe(value, lock)
    call('DEL', lock)
    set = {slots = 0}
  end
  quietly(settle, lock, set)
  return describeAll(broken) or others
end

local function breakOne(lock, token)
  local value = redis.pcall('GET', lock)
  if holdersIn(value) then
    local set = holdersOf(lock, value)
    if set then
      return breakHolders(lock, value, set, tonumber(string.match(token, '%d+')))
    end
  end
  local words = describe(value, lock)
  if words and string.sub(words[4], 1, #token) ~= token then
    return false
  elseif words and type(value) == 'string' then
    free(lock)
  elseif words then
    local kind = redis.pcall('TYPE', lock)
    return {'type', kind.ok or 'key of another type'}
  else
    quietly(settle, lock, {slots = 0})
  end
  return words
end

local answers = {}
for i = 1, #KEYS - before do
  answers[i] = attempt(breakOne, KEYS[before + i], ARGV[i + 1])
end
return answers
