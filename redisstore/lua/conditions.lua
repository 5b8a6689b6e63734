-- What the scripts of all verbs but acquisitions need for the queue of a lock, behind their usual
-- case. See acquire.lua for the arguments.
local call, format = redis.call, string.format
local counter, ahead, queues = KEYS[1], KEYS[2], KEYS[3]
local maxToken, maxLead, maxTokensLead = 9007199254740991, 86400000000, 86400000000 -- see acquire.lua
local now = redis.pcall('TIME')

-- abstain is above 0 if nothing may be granted: by a failure, too, since what else the script does
-- must not fail because of that.
local abstain, unknown, short, replicas = 0, false, nil, 0
if now.err then
  now, abstain = {0, 0}, 1
elseif #ARGV[1] > 1 then
  local guard, kept, wanted = string.match(ARGV[1], '^%d (%d+) (%S+) (%d+)$')
  replicas = tonumber(wanted)
  local done = pcall(function()
    if guard ~= '0' then
      abstain, unknown = abstains(KEYS[4], tonumber(guard), kept, now)
    end
    short = replicas > 0 and missing(replicas) or nil
  end)
  abstain = done and abstain or 1
end
