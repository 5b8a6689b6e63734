#!lua flags=no-writes
-- Tries the right to run commands, and changes nothing: the server checks the rights of the user to
-- a command and its keys first, and then refuses what would write, because of the flag.
--
-- ARGV: commands, each as its words with line breaks between them. Answers the error of each, or
-- "".
local errors = {}
for i, command in ipairs(ARGV) do
  local words = {}
  for word in string.gmatch(command, '[^\n]+') do
    words[#words + 1] = word
  end
  local reply = redis.pcall(unpack(words))
  errors[i] = type(reply) == 'table' and reply.err or ''
end
return errors
