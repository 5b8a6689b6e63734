-- Ends the hold or keep that has a token in its block, or all for 0. ARGV: the token of each. Answers
-- {places, what it ended}, or {'type', type} for a key that is no string: it may be data.
local function break_(s, token)
  load(s)
  token = tonumber(token)
  local ended, rest = {}, s.counts
  if s.foreign and type(s.foreign) ~= 'string' then
    if token == 0 then
      return {'type', redis.pcall('TYPE', s.lock).ok or 'key of another type'}
    end
    return {0, {}}
  end
  for _, e in ipairs(holds(s, 1000000)) do
    if token == 0 or e.token <= token and token < e.token + e.tokens then
      ended[#ended + 1] = e
    end
  end
  local answer = {0, (token == 0 or #ended > 0) and describeAll(s, ended) or {}}
  if #answer[2] > 0 then
    for _, e in ipairs(ended) do
      if s.counts then
        forget(s, e.owner, e)
      end
    end
    if token == 0 or not s.counts then
      write('DEL', s.lock, s.holders)
      s.n, s.least, s.hold, s.counts, s.foreign = 0, shared, nil, nil, nil
    else
      save(s)
    end
  end
  pcall(settle, s)
  for _, e in ipairs(ended) do
    if e.kind == 'h' then
      tell(e, 0)
    end
  end
  answer[1] = waiting(s)
  return answer
end

return run(break_, 1)
