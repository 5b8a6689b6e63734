-- Ends the hold or keep that has a token in its block, or all for 0. Of each: the token. Answers
-- {places, what it ended}, or {'type', type} for a key that is no string: it may be data.

-- include queue.lua

local function verb(lock, queue, entries, token)
  local s, ended = load(lock, queue, entries), {}
  token = tonumber(token)
  if s.foreign and type(s.foreign) ~= 'string' then
    if token == 0 then
      return {'type', redis.pcall('TYPE', lock).ok or 'key of another type'}
    end
    return {0, {}}
  end
  s:settle()
  for _, e in ipairs(s:holds(1000000)) do
    if token == 0 or e.token <= token and token < e.token + match(e.rest, '^%d+') then
      ended[#ended + 1] = e
    end
  end
  local places, described = s:waiting(), (token == 0 or #ended > 0) and s:describe(ended) or {}
  if #described > 0 then
    for _, e in ipairs(ended) do
      if s.counts then
        s:forget(e.owner, e)
      end
    end
    if token == 0 or not s.counts then
      s:drop()
    else
      s:save()
    end
  end
  s:settle()
  for _, e in ipairs(ended) do
    if e.kind == 'h' then
      s:tell(e, 0)
    end
  end
  return {places, described}
end
