-- The beginning of scripts: before is the number of keys before those of the locks.
local before = tonumber(ARGV[1]) or tonumber(string.sub(ARGV[1], 1, 1))
