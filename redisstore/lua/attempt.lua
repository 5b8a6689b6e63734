-- A function for the scripts that this text is put in front of.

-- attempt returns what f returns. If a command in f fails, it returns
-- {'failed', the server's words}: the failure concerns one lock, and others may
-- have been written already. f must not write before a command that can fail.
local function attempt(f, ...)
  local done, answer = pcall(f, ...)
  if done then
    return answer
  end
  return {'failed', type(answer) == 'table' and answer.err or tostring(answer)}
end
