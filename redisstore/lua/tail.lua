-- What all scripts end with: the verb for each lock without an answer, with its keys and arguments;
-- then the notices. A failure concerns one lock. Its answer is {'failed', 1 if something was
-- changed, why}. That of a replica, which changes nothing, is the answer of the
-- script: so the client drops a connection that has stayed at a master that is one no more.
for i = 1, locks do
  local k = shared + i
  wrote = false
  local done, answer = true, answers[i]
  if answer == nil then
    done, answer = pcall(verb, KEYS[k], KEYS[k + locks], KEYS[k + 2 * locks], unpack(ARGV, 2 + args * (i - 1), 1 + args * i))
  end
  if not done then
    local why = type(answer) == 'table' and answer.err or tostring(answer)
    if string.find(why, 'READONLY ', 1, true) then
      return redis.error_reply('READONLY ' .. match(why, 'READONLY (.*)$'))
    end
    answer = {'failed', wrote and 1 or 0, why}
  end
  answers[i] = answer
end
for _, notice in ipairs(told) do
  redis.pcall('PUBLISH', notice[1], notice[2])
end
return answers
