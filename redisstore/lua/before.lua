-- The beginning of scripts: before is the number of keys before those of the locks. It is 0 for a
-- script that can use nothing but a lock, since its slot is being moved: see sendApart.
local before = tonumber(ARGV[1]) or tonumber(string.sub(ARGV[1], 1, 1))
