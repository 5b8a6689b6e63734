#!/bin/sh
# What takeover.svg shows, in a temporary folder as HOME: A is stopped for longer than its lock lasts, B
# takes over, and then A writes. A line "A $ text" is typed at terminal A, "A > text" is its output, and
# "A - text" is what happens to it. TestTakeover compares the picture with it.
set -eu
cd "$HOME"
say() { printf '%s\n' "$*"; }

cat >write <<'END'
#!/bin/sh
# The resource: it keeps the greatest token that it has seen, and refuses a smaller one.
seen=$(cat seen 2>/dev/null || echo 0)
[ "$1" -ge "$seen" ] || { echo "refused: token $1 is stale, $seen was here"; exit 1; }
echo "$1" >seen
echo "written with token $1"
END
chmod +x write

cat >a.sh <<'END'
token=$(holdfast acquire register --ttl 2s --json | sed 's/.*"token":\([0-9]*\).*/\1/')
echo "token $token"
kill -STOP $$
./write "$token"
END

say 'A $ holdfast acquire register --ttl 2s'
mkfifo out
sh a.sh >out 2>&1 &
a=$!
exec 3<out
read -r line <&3
say "A > $line"
say 'A - stopped: its machine hangs'
say 'B $ holdfast run register -- ./write'
say 'B - waits until the lock of A has expired'
say "B > $(holdfast run register -- sh -c './write "$HOLDFAST_TOKEN"')"
say 'A - goes on, and knows nothing of it'
say 'A $ ./write'
kill -CONT "$a"
read -r line <&3
say "A > $line"
