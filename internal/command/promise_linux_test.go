package command

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/servers"
)

// A tree is a kind of processes that a command consists of. The script writes three lines when all
// are there.
type tree struct{ name, script string }

var trees = []tree{
	// Grandchildren that ignore SIGTERM, one of them an orphan in a session of its own.
	{"stubborn", `
trap '' TERM INT HUP QUIT
(setsid sh -c 'echo up; sleep 1000; :' &)
sh -c '(echo up; sleep 1000; :); :' &
echo up
while :; do sleep 1000; done`},
	{"fork until EAGAIN", `
exec perl -e '$SIG{TERM} = "IGNORE"; for (1..200) { defined($p = fork) or last; if (!$p) { setpgrp; sleep 1000; exit } } print "up\nup\nup\n"; close STDOUT; sleep 1000'`},
	{"daemons that close everything", `
for i in 1 2; do perl -MPOSIX -e 'exit if fork; setsid; exit if fork; syswrite STDOUT, "up\n"; POSIX::close($_) for 0..255; sleep 1000'; done
echo up; exec sleep 1000`},
	{"sessions", `
setsid sh -c 'setsid sh -c "echo up; sleep 1000; :" & echo up; wait' & echo up; wait`},
	// One goes on under its tracer, the other stays stopped.
	{"traced", `
exec perl -MPOSIX -e '$n = (POSIX::uname)[4] eq "x86_64" ? 101 : 117;
	for $i (1, 2) { if (!($p = fork)) { syscall $n, 0, 0, 0, 0; kill STOP => $$; sleep 1000; exit }
		waitpid $p, 0; syscall $n, 7, $p, 0, 0 if $i == 1; syswrite STDOUT, "up\n" }
	syswrite STDOUT, "up\n"; sleep 1000'`},
	{"stopped", `
(setsid sh -c 'echo up; kill -STOP $$; :' &); sh -c 'echo up; kill -STOP $$; :' & echo up; exec sleep 1000`},
	{"namespaces", `
unshare -Urpf --mount-proc sh -c '(setsid sh -c "echo up; sleep 1000; :" &); echo up; sleep 1000; :' & echo up; exec sleep 1000`},
	{"ever new processes", `
echo 'sleep .01; setsid sh ./hop &' >hop; setsid sh ./hop & setsid sh ./hop & printf 'up\nup\nup\n'; exec sleep 1000`},
}

// shortLived leaves grandchildren that end by themselves before the TTL.
var shortLived = tree{"short-lived", `
(setsid sh -c 'echo up; sleep 1.5; :' &)
sh -c '(echo up; sleep 1; :); :' &
echo up
exec sleep 1000`}

// many has 500 daemons, and a process that ends in two seconds, not before: it is root's.
var many = tree{"500 daemons", `
>ten; mkfifo fifo; $FOREIGN sleep 2 & echo $! >foreign
for i in 0 1 2 3 4 5 6 7 8 9; do setsid sh -c 'for i in $(seq 50); do (read x) <>fifo & done; echo up >>ten; wait' & done
until test "$(wc -l <ten)" = 10; do sleep .01; done; printf 'up\nup\nup\n'; exec sleep 1000`}

// A faultCase is what happens to the two processes of a "holdfast run".
type faultCase struct {
	name, inject string
	start        string                         // how the run is started, if not by "run"
	tree         tree                           // the only one, if there is one
	before       bool                           // the second run begins after the fault
	hook         func(t *testing.T, dir string) // called before the start
}

// either is one of the two.
const either = `$(shuf -n 1 -e $parent $supervisor)`

var faultCases = []faultCase{
	{name: "parent killed", inject: `kill -9 $parent`},
	{name: "supervisor killed", inject: `kill -9 $supervisor`},
	{name: "parent stopped", inject: `kill -STOP $parent; sleep 5; kill -9 $supervisor`},
	{name: "supervisor stopped", inject: `kill -STOP $supervisor`},
	{name: "supervisor stopped, parent killed", inject: `kill -STOP $supervisor; kill -9 $parent`},
	{name: "command killed", inject: `kill -9 $command`},
	{name: "store cut", before: true, inject: `
		if test -d locks; then rm -f locks/*; chmod a-w locks; else exec 8<>/dev/tcp/${REDIS/:/\/}; echo CLIENT PAUSE 9000 >&8; read <&8; fi
		wait $first; sh -c "$check" TAG=$ID; test ! -d locks || chmod -R u+w locks`},
	{name: "limits reached", inject: `
		for p in $parent $supervisor; do prlimit --nofile=0 --nproc=0 --fsize=0 --pid $p || echo no limits; done; kill -9 ` + either},
	{name: "nobody reads standard error", inject: `kill -STOP $supervisor`,
		start: `mkfifo full; exec 7<>full; head -c 65536 /dev/zero >&7; run -v 2>&7`},
	{name: "max-hold", start: `run --max-hold 6s`},
	{name: "suspended", inject: `kill -STOP $parent; kill -STOP -$command; sleep 5; kill -9 ` + either},
	{name: "front killed", start: `sleep 1000 & echo $! >older; run`, inject: `kill -9 $first; kill -9 $(cat older)`},
	// No process is left to kill the grandchildren, but the lock is not free as long as they
	// live, up to its TTL. One kill reaches both, in the group of the terminal.
	{name: "both killed", inject: `kill -9 -$(ps -o pgid= -p $supervisor | tr -d ' ')`, tree: shortLived,
		start: `exec script -qec "exec holdfast run x --ttl 4s -- setsid env TAG=$ID sh ./tree" /dev/null`},
}

// promiseScript runs the lock's first run beside a stranger, a process of the same group, and then
// the second, whose command looks for what is left of the first. It prints what is wrong.
const promiseScript = `
run() { exec holdfast run x --ttl 4s --kill-after 100ms "$@" -- env TAG=$ID sh ./tree; }
export -f run
check='grep -lszFx "$0" /proc/[0-9]*/environ && exit 1; ! grep -s State:.[^Z] /proc/$(cat foreign 2>/dev/null)/status'
second() { holdfast run x --ttl 4s --kill-after 100ms -- sh -c "$check" TAG=$ID & second=$!; }
perl -e '
	for my $s (grep { !/KILL|STOP|CHLD|NUM|RT|^__/ } keys %SIG, qw(HUP INT QUIT TERM USR1 USR2 CONT TSTP)) { $SIG{$s} = sub { syswrite STDOUT, "a stranger got $s\n" } }
	open F, ">strange"; sleep 1 until getppid == 1' & stranger=$!
until test -e strange; do sleep .01; done

$UNSHARE bash -c 'ulimit -u ${LIMIT:-80}; eval "$START"' >out 2>err & first=$!
until test $(grep -c ^up out) -ge 3; do sleep .01; kill -0 $first || exit; done
read supervisor command <pids; parent=$(ps -o ppid= -p $supervisor | tr -d ' ')
test $BEFORE = true || { second; sleep .0$((RANDOM % 10)); }
eval "$INJECT"
test $BEFORE = false || second
wait $second || echo "the second run: $?"
kill $parent 2>/dev/null; wait $first
grep -q State:.S /proc/$stranger/status || echo a stranger is killed; kill -9 $stranger`

// TestPromise: when a second "holdfast run" starts its command, no process of the
// first is alive, whatever has happened to that. Nor was a process signaled that is none of it.
//
// An advisory lock ends with a connection, which the death of the supervisor would end.
func TestPromise(t *testing.T) {
	rounds := len(faultCases)
	if text := os.Getenv("TEST_ROUNDS"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	program := installProgram(t, openTempDir(t))
	for i := range rounds {
		b, tree := faultCases[i%len(faultCases)], trees[(i+i/len(faultCases))%len(trees)]
		if b.tree.name != "" {
			tree = b.tree
		}
		for n, store := range []string{"file", "redis"} {
			if rounds == len(faultCases) && (store == "redis") != (i%2 == 0) {
				continue // of the few rounds that are part of every test, each has one store
			}
			testPromise(t, program, 3*i+n, b, tree, store)
		}
		if b.name == "supervisor killed" {
			testPromise(t, program, 3*i+2, b, many, "advisory")
		}
	}
}

func testPromise(t *testing.T, program string, number int, b faultCase, tree tree, store string) {
	t.Run(b.name+", "+tree.name+", "+store, func(t *testing.T) {
		t.Parallel()
		dir := openTempDir(t)
		cmd := exec.CommandContext(t.Context(), "timeout", "-k1", "60", "bash", "-c", promiseScript)
		if b.start == "" {
			b.start = "run"
		}
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"),
			fmt.Sprintf("ID=%d-%d", os.Getpid(), rand.Uint64()), "START="+b.start, "INJECT="+b.inject, fmt.Sprint("BEFORE=", b.before))
		switch store {
		case "file":
			cmd.Env = append(cmd.Env, "HOLDFAST_STORE=file:locks")
		case "redis":
			addr := servers.StartRedis(t).Addr
			cmd.Env = append(cmd.Env, "HOLDFAST_STORE=redis://"+addr, "REDIS="+addr)
		case "advisory":
			url := strings.Replace(servers.StartPostgres(t).URL("postgres"), "postgres:", "postgres+advisory:", 1)
			cmd.Env = append(cmd.Env, "HOLDFAST_STORE="+url, "LIMIT=1000")
		}
		if os.Geteuid() == 0 {
			uid := uint32(60000 + number%5000)
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
			cmd.Env = append(cmd.Env, "FOREIGN="+filepath.Dir(program)+"/foreign --reuid 0")
		} else { // The limit does not count the user's other processes then.
			cmd.Env = append(cmd.Env, "UNSHARE=unshare --user --map-current-user")
		}
		cmd.Dir, cmd.WaitDelay = dir, time.Second
		script := "echo $PPID $$ >pids\n" + tree.script
		if err := os.WriteFile(filepath.Join(dir, "tree"), []byte(script), 0o644); err != nil {
			t.Fatal(err)
		}
		if b.hook != nil {
			b.hook(t, dir)
		}
		out, err := cmd.Output()
		if len(out) > 0 || err != nil {
			said, _ := os.ReadFile(filepath.Join(dir, "err"))
			t.Errorf("%s(%v) %s", out, err, said)
		}
	})
}

const nobodyID = 65534

// openTempDir is a temporary folder that every user may use.
func openTempDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, folder := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(folder, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// installProgram copies this test binary to where every user may execute it, as holdfast, and
// setpriv as foreign, which runs as root if the test does.
func installProgram(t *testing.T, dir string) string {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "sh", "-c",
		`cd "$0" && cp /proc/$PPID/exe holdfast && chmod 755 holdfast && cp /usr/bin/setpriv foreign && chmod 4711 foreign`, dir).CombinedOutput(); err != nil {
		t.Fatalf("%s, %v", out, err)
	}
	return filepath.Join(dir, "holdfast")
}
