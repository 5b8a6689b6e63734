-- What all scripts end with: the verb for each lock without an answer, with its keys and arguments;
-- a test whether this is a master, which alone may answer; then the notices. A failure concerns one
-- lock. Its answer is {'failed', 1 if something was changed, why}. That of a replica is the answer of
-- the script: so the client drops a connection that has stayed at a master that is one no more.
if guard ~= '0' or replicas ~= '0' then
  replication = call('INFO', 'replication')
  if guard ~= '0' and string.find(replication, 'role:slave', 1, true) then -- It can be written to. Its master takes everything back.
    return redis.error_reply('READONLY a restart guard is of use on a master only')
  end
end
for i = 1, locks do
  local k = offset + i
  wrote = false
  local done, answer = true, answers[i]
  if answer == nil then
    done, answer = pcall(verb, KEYS[k], KEYS[k + locks], KEYS[k + 2 * locks], unpack(ARGV, 2 + args * (i - 1), 1 + args * i))
  end
  if not done then
    answer = {'failed', wrote and 1 or 0, type(answer) == 'table' and answer.err or tostring(answer)}
  end
  answers[i] = answer
end
if not master then
  local reply = redis.pcall('ZREM', KEYS[offset + locks + 1], '') -- It changes nothing, and a replica refuses it.
  if type(reply) == 'table' and string.find(reply.err, 'READONLY ', 1, true) then
    return redis.error_reply(match(reply.err, 'READONLY .*'))
  end
end
for _, notice in ipairs(told) do
  redis.pcall('PUBLISH', notice[1], notice[2])
end
return answers
