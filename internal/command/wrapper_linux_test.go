package command

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// wrapperRows are what a wrapper meets beside its command: a script for bash, and what it prints.
var wrapperRows = []struct{ name, script, want string }{
	// Whose it is: only what the command has started is waited for, signaled and killed.
	{"a log that an older child writes", `
		bash -c 'exec > >(cat >log); exec holdfast run a -- echo done'; echo $?`, "0"},
	{"an older child", `
		bash -c 'sleep 1000 & echo $! >old; exec holdfast elect a -- sh -c "exit 5"'; echo $?; kill $(cat old) && echo lives`, "5 lives"},
	{"an older child, and the supervisor is killed", `
		bash -c 'sleep 1000 & echo $! >old; exec holdfast run a -- sh -c "(setsid sleep 1000 & echo \$! >daemon); sleep 1000"' & p=$!
		until test -s daemon; do sleep .01; done
		kill -9 $(pgrep -x supervisor -P $(pgrep -x parent -P $p)); wait $p; echo $?
		kill $(cat old) && echo lives; grep 'State:.[^Z]' /proc/$(cat daemon)/status || echo dead`, "121 lives dead"},
	{"a signal through a front", `
		bash -c 'sleep 1000 & echo $! >old; exec holdfast run a -- sh -c "trap \"echo got; exit 6\" TERM; >ready; while :; do sleep .01; done"' & p=$!
		until test -e ready; do sleep .01; done; kill $p; wait $p; echo $?; kill $(cat old)`, "got 6"},
	{"process 1", `
		unshare -rpf --mount-proc holdfast run a -- sh -c '(sleep 1000 &); exit 3'; echo $?`, "3"},
	{"process 1 with a stranger", `
		unshare -rpf --mount-proc bash -c 'sleep 1000 & exec holdfast run a -- sh -c "echo \$PPID >&2; exit 4"' 2>/dev/null; echo $?`, "4"},
	{"process 1 reaps strangers", `
		unshare -rpf --mount-proc bash -c 'sleep .2 & echo $! >old; exec holdfast run a -- sh -c "while test -e /proc/\$(cat old); do sleep .01; done; echo reaped"'`, "reaped"},
	{"an older child that does not end with SIGCHLD", `
		perl -e '$clone = qx(uname -m) =~ /x86/ ? 56 : 220; if (!syscall $clone, 0, 0, 0, 0, 0) { sleep 1000; exit } exec @ARGV' holdfast run a -- sleep 1000 & p=$!
		until pgrep -x supervisor -g $p || pgrep -x parent -P $p; do sleep .01; done >/dev/null; pgrep -x parent -P $p >/dev/null && echo a front; pkill -P $p; wait $p`, "a front"},
	{"more children than a page of the kernel's list has", `
		cat >many <<'END'
for (1..900) { if (!fork) { exit if fork; $SIG{TERM} = sub { open F, ">>got"; print F "T\n"; exit }; open F, ">>up"; print F "U\n"; close F; sleep 1000; exit } wait }
select undef, undef, undef, .01 until (-s "up") == 1800;
END
		holdfast run a --ttl 1h --kill-after 20s -- perl many; wc -l <got`, "900"},
	{"the /proc of another namespace", `
		unshare -rpf holdfast run a -- touch started 2>err; echo $?; grep -c 'try: unshare --mount-proc' err; test -e started || echo not started`, "126 1 not started"},

	{"the job of a shell in another namespace", `
		script -qec 'unshare -rpf --mount-proc holdfast run a -- touch started' /dev/null >err; echo $?; grep -c 'try: setsid -w' err; test -e started || echo not started
		script -qec 'unshare -rpf --mount-proc setsid -w holdfast run a -- echo with it' /dev/null`, "126 1 not started with it"},

	// What it needs, it has before the command starts.
	{"nobody reads standard error", `
		mkfifo full; exec 7<>full; head -c 65536 /dev/zero >&7
		holdfast run a -v --ttl 2s --kill-after 100ms -- sh -c 'trap "" TERM; echo $$ >pid; while :; do sleep .01; done' 2>&7 & p=$!
		until test -s pid; do sleep .01; done; kill -STOP $(pgrep -x supervisor -P $p)
		holdfast run a --ttl 2s -- sh -c 'grep "State:.[^Z]" /proc/$(cat pid)/status || echo dead'
		u=$(cut -d' ' -f15 /proc/$p/stat); sleep 1; test $(($(cut -d' ' -f15 /proc/$p/stat) - u)) -lt 20 && echo idle; kill $p; wait $p`, "dead idle"},
	{"nobody reads standard error, and SIGTERM has come before", `
		mkfifo full; exec 7<>full; head -c 65536 /dev/zero >&7
		holdfast run a -v -- sh -c 'trap "" TERM; >ready; until test -e go; do sleep .01; done' 2>&7 & p=$!
		until test -e ready; do sleep .01; done; kill $p; sleep .3; >go; wait $p; echo $?`, "143"},
	{"a second signal after the command has ended, before all is on standard error", `
		mkfifo full; exec 7<>full; head -c 65536 /dev/zero >&7
		holdfast run a -v -- sh -c 'trap "" TERM; >ready; until test -e go; do sleep .01; done; exit 5' 2>&7 & p=$!
		until test -e ready; do sleep .01; done; s=$(pgrep -x supervisor -P $p); kill $p; sleep .3; >go
		while grep -q 'State:.[^Z]' /proc/$s/status; do :; done 2>/dev/null; sleep .1; kill $p; sleep .1; cat full >/dev/null & wait $p; echo $?; kill $!`, "5"},
	{"nobody reads standard error, and the parent is killed", `
		mkfifo full; exec 7<>full; head -c 65536 /dev/zero >&7
		holdfast run a -v --ttl 2s -- sh -c '>ready; exec sleep 1000' 2>&7 & p=$!
		until test -e ready; do sleep .01; done; s=$(pgrep -x supervisor -P $p); kill -9 $p
		while grep -q 'State:.[^Z]' /proc/$s/status 2>/dev/null; do sleep .01; done; echo ended`, "ended"},

	// One state for both processes.
	{"suspended while it waits", `
		for v in "run a" "elect b"; do
			set -- $v; holdfast run $2 -- sh -c '>has; sleep 1' & h=$!; until test -e has; do sleep .01; done
			holdfast $v -- touch started & p=$!; sleep .5; kill -STOP $p; wait $h
			holdfast run $2 -- echo other; test -e started || echo not yet; kill -CONT $p; wait $p; ls started; rm has started
		done`, "other not yet started other not yet started"},

	{"elect is suspended when it has the lock, and the store is away", `
		holdfast run a -- sh -c '>has; sleep 1' & h=$!; until test -e has; do sleep .01; done
		holdfast elect a -- echo leads 2>err & p=$!; sleep .5; kill -STOP $p; wait $h; holdfast run a -- true; sleep 2
		mv locks away; ln -s locks locks; kill -CONT $p; sleep 2; rm locks; mv away locks; wait $p; echo $?`, "leads 0"},
	{"elect leads again after its supervisor hung", `
		holdfast elect a --ttl 4s --kill-after 1s -- sh -c 'echo >>runs; test $(wc -l <runs) = 2 && exit; trap "exit 9" TERM; while :; do sleep .01; done' & p=$!
		until test -s runs; do sleep .01; done; kill -STOP $(pgrep -x supervisor -P $p); wait $p; echo $?`, "0"},
	{"the command of elect has the code of a lost lock", `
		timeout 5 holdfast elect a -- sh -c 'echo started; exit 121'; echo $?`, "started 121"},
	{"SIGTERM comes once, from the parent of a supervisor that hung", `
		holdfast run a --ttl 4s --kill-after 1s -- perl -e '$SIG{TERM} = sub { syswrite STDOUT, "TERM\n"; $got = 1 }; open F, ">ready"; select undef, undef, undef, .01 until $got; select undef, undef, undef, .01 for 1..50' & p=$!
		until test -e ready; do sleep .01; done; kill -STOP $(pgrep -x supervisor -P $p); wait $p; echo $?`, "TERM 121"},
	{"SIGTERM while it waits, and the supervisor is stopped", `
		holdfast run a -- sh -c '>has; exec sleep 1000' & h=$!; until test -e has; do sleep .01; done
		holdfast run a -v -- true 2>err & p=$!; until test -s err; do sleep .01; done
		kill -STOP $(pgrep -x supervisor -P $p); kill $p; wait $p; echo $?; kill $h; wait $h`, "143"},
	{"SIGINT to a front that waits on a terminal", `
		set -m; holdfast run a -- sh -c '>has; exec sleep 1000' & h=$!; until test -e has; do sleep .01; done
		script -qec "bash -c 'sleep 20 & echo \$\$ >pid; exec holdfast run a -v -- true'" /dev/null >err & until test -s err; do sleep .01; done
		kill -INT $(cat pid); wait $!; echo $?; kill $h; wait $h`, "130"},
	{"Ctrl-C and Ctrl-\\ come once, in a job, without a shell, and through a front", `
		cat >work <<'END'
for my $s (qw(INT QUIT)) { $SIG{$s} = sub { open F, ">>got"; print F "$s\n"; close F } }
open F, ">ready"; select undef, undef, undef, .01 until -e "end"; exit 3
END
		for v in '' exec 'sleep 20 & exec'; do for key in '\003' '\034'; do
			rm -f ready got end
			(until test -e ready; do sleep .01; done; printf $key; until test -e got; do sleep .01; done; sleep .3; >end) |
				SHELL=/bin/bash script -qec "set -m; $v holdfast run a -- perl work" /dev/null >/dev/null
			echo $?; cat got
		done; done | sort | uniq -c`, "6 3 3 INT 3 QUIT"},
	{"Ctrl-C at the start", `
		holdfast run a -- sh -c '>has; exec sleep 1000' & h=$!; until test -e has; do sleep .01; done
		for i in 1 2 3 4 5; do
			(until test -s pid && grep -q . /proc/$(cat pid)/task/*/children; do :; done; printf '\003') |
				script -qec 'echo $$ >pid; exec holdfast run a -- true' /dev/null >/dev/null; echo $?; rm pid
		done 2>/dev/null | uniq -c; kill $h`, "5 130"},
	{"a job that Ctrl-Z suspends keeps its lock, and continues in the foreground", `
		cat >job <<'END'
set -m; holdfast run a --ttl 2s -- sh -c '>ready; read line; echo "read $line"; exit 8' >said
echo $? >stopped; sleep 3; holdfast run a --try -- true; echo $? >tried; fg
END
		(until test -e ready; do sleep .01; done; printf '\032'; until test -s tried; do sleep .01; done; echo hello) |
			script -qec 'bash job' /dev/null >/dev/null; echo $?; cat stopped tried said | grep -v holdfast`, "8 148 75 read hello"},
	{"Ctrl-Z without a shell", `
		(until test -e ready; do sleep .01; done; printf '\032'; echo hello) |
			script -qec 'exec holdfast run a -- sh -c ">ready; read line; echo read \$line >said; exit 8"' /dev/null >/dev/null; echo $?; cat said`, "8 read hello"},
	{"a window that changes its size", `
		script -qec "holdfast run a -- sh -c 'trap \"stty size >size; exit 0\" WINCH; tty >name; while :; do sleep .01; done'" /dev/null >/dev/null &
		until test -s name; do sleep .01; done; stty -F $(cat name) cols 123; wait $!; cat size`, "0 123"},
	{"Ctrl-Z stops the parent, never the supervisor, which starts in the same job", `
		cat >job <<'END'
set -m
bash -c "$1 exec holdfast run a -- perl -e 'open F, q(/proc/self/status); /SigBlk/ && syswrite STDOUT, \$_ while <F>; open F, q(>ready); sleep 20'" & p=$!; until test -e ready; do sleep .01; done
parent=$(pgrep -x parent -P $p || echo $p); s=$(pgrep -x supervisor -P $parent); kill -TSTP $s $parent; sh -c "until grep -q State:.T /proc/$parent/status; do sleep .01; done"
grep -q State:.T /proc/$s/status && echo stopped; kill -CONT $parent $s; kill $parent; wait $p; rm ready
END
		script -qec 'bash job; bash job "sleep 20 &"' /dev/null </dev/null | grep -v ermina`, "SigBlk: 0000000000000000 SigBlk: 0000000000000000"},

	// Whichever of the two is signaled, stopped or killed.
	{"signals reach the group", `
		cat >tree <<'END'
trap 'echo root >>got; exit 3' $1
sh -c 'trap "echo child >>got; exit" '$1'; >ready; while :; do sleep .01; done' | cat
END
		set -m; for sig in INT TERM HUP QUIT USR1 USR2 WINCH; do
			rm -f ready; holdfast run a -- sh ./tree $sig & p=$!; until test -e ready; do sleep .01; done; kill -$sig $p; wait $p; echo $? >>got
		done; sort got | uniq -c`, "7 3 7 child 7 root"},
	{"SIGTSTP and SIGCONT reach the group", `
		holdfast run a -- sh -c 'echo $$ >pid; exec sleep 1000' & p=$!; until test -s pid; do sleep .01; done
		kill -TSTP $p; until grep -q State:.T /proc/$(cat pid)/status; do sleep .01; done
		kill -CONT $p; until grep -q State:.S /proc/$(cat pid)/status; do sleep .01; done; kill $p; wait $p; echo $?`, "143"},
	{"what is left behind may finish, and is killed", `
		holdfast run a -- sh -c '(sleep .05; echo finished) & exit 0'
		holdfast run a --kill-after 100ms -- sh -c '(setsid sh -c "trap \"\" TERM; echo \$\$ >pid; sleep 1000; :" &); until test -s pid; do sleep .01; done; exit 5'
		echo $?; ls /proc/$(cat pid)`, "finished 5"},
	{"signals to the supervisor", `
		holdfast run a -- sh -c 'trap "echo got; exit 3" TERM; echo $PPID >pid; while :; do sleep .01; done' & p=$!; until test -s pid; do sleep .01; done
		for s in INT TERM HUP QUIT USR1 PIPE; do kill -$s $(cat pid); done; kill $p; wait $p; echo $?`, "got 3"},
	{"each is stopped for a while", `
		holdfast run a -- sh -c 'echo $PPID >pid; kill -STOP $PPID; exit 4' & p=$!; until test -s pid; do sleep .01; done; sleep .5; kill -CONT $(cat pid); wait $p; echo $?
		holdfast run a --ttl 2s -- sh -c '>has; sleep 4; exit 6' & p=$!; until test -e has; do sleep .01; done; kill -STOP $p; sleep 3; kill -CONT $p; wait $p; echo $?`, "4 6"},
	{"SIGTERM to a session of its own, when the store is away", `
		holdfast run a --ttl 4s --kill-after 1s -- sh -c 'setsid sh -c "trap \"echo got; exit\" TERM; >ready; while :; do sleep .01; done" &
			until test -e ready; do sleep .01; done; mv locks away; ln -s locks locks; wait' 2>err; echo $?`, "got 121"},
	{"one is stopped and the other is killed, under a reaper of orphans", `
		cat >tree <<'END'
trap '' TERM; echo $PPID >s; setsid sh -c 'echo $$ >pid; sleep 1000; :' & sleep 1000
END
		cat >job <<'END'
for stop in s p; do
	rm -f s pid; holdfast run a -- sh ./tree & p=$!; until test -s pid -a -s s; do sleep .01; done; s=$(cat s)
	kill=$((s + p - stop)); kill -STOP $((stop)); until grep -q State:.T /proc/$((stop))/status; do sleep .01; done; kill -9 $kill
	for pid in $(cat pid) $((stop)); do while grep -q 'State:.[^Z]' /proc/$pid/status; do sleep .01; done; done; echo dead
done 2>/dev/null
END
		perl -e 'syscall qx(uname -m) =~ /x86/ ? 157 : 167, 36, 1, 0, 0, 0; exec @ARGV' bash job`, "dead dead"},
	{"what ends a command does not reach the next", `
		holdfast elect a -- sh -c 'echo >>runs; test $(wc -l <runs) = 9 && exit 5; holdfast break a --yes >/dev/null; exec sleep 1000' 2>err; echo $?`, "5"},

	// The parent of holdfast sees how the command, or a wait, has ended.
	{"SIGINT ends it", endsRow(syscall.SIGINT), ""},
	{"SIGTERM ends it", endsRow(syscall.SIGTERM), ""},
	{"SIGHUP ends it", endsRow(syscall.SIGHUP), ""},
	{"SIGQUIT ends it", endsRow(syscall.SIGQUIT), ""},
	{"a command that handles the signal has an exit code", `
		holdfast run a -- sh -c 'trap "exit 143" TERM; >ready; while :; do sleep .01; done' & until test -e ready; do sleep .01; done
		exec perl -e 'kill TERM, $ARGV[0]; waitpid $ARGV[0], 0; print $? >> 8' $!`, "143"},
	{"a candidate that waits, or has no command, tells systemd that it is ready", `
		perl -MIO::Socket::UNIX -e '$s = IO::Socket::UNIX->new(Type => SOCK_DGRAM, Local => "notify"); open F, ">told";
			for my $i (1, 2) { $s->recv(my $m, 99); print "$m\n"; open F, ">ready" }' & told=$!; until test -e told; do sleep .01; done
		export NOTIFY_SOCKET=$PWD/notify; holdfast elect a -- sleep 1000 & holdfast elect a -- sleep 1000 & until test -e ready; do sleep .01; done
		holdfast elect b --http 127.0.0.1:0 2>err & wait $told; kill %2 %3 %4`, "READY=1 READY=1"},

	// It ends here, as docs/cli.md says.
	{"both are killed, and a daemon has the descriptors open", bothKilledRow(""), "lives 75"},
	{"both are killed, and a daemon has closed its descriptors", bothKilledRow("POSIX::close($_) for 0..255;"), "lives 0"},
	{"both are stopped past the TTL", `
		holdfast run a --ttl 2s -- sh -c 'echo $$ >pid; exec sleep 1000' & p=$!
		until test -s pid; do sleep .01; done; s=$(pgrep -x supervisor -P $p); kill -STOP $s $p
		holdfast run a -- grep -q 'State:.[^Z]' /proc/$(cat pid)/status && echo lives; kill -CONT $s $p; wait $p; echo $?; ls /proc/$(cat pid)`, "lives 121"},
	{"another does the work", `
		mkfifo jobs; sh <jobs & holdfast run a -- sh -c 'echo "sleep 1000 & echo \$! >pid; wait" >jobs; until test -s pid; do sleep .01; done'
		kill $(cat pid) && echo lives`, "lives"},

	// Invisible, and what was given is what is used.
	{"the shell of -c", `
		SHELL=/bin/bash holdfast run a -c 'echo ${BASH_VERSION:+bash}'`, "bash"},
	{"metadata", `
		for v in 'say"hi"' 'psql"a=b"' 'https://ci/?a=1,b=2' 'a,b' 'a=b,c'; do
			holdfast run a --meta "v=$v" --meta w=1 -- holdfast show a --json | grep -o '"metadata.*'
			HOLDFAST_META="v=$v"$'\nw=2' holdfast run a -- holdfast show a --json | grep -o '"metadata.*'
		done | sed 's/"metadata"://; s/}}/}/'`,
		`{"v":"say\"hi\"","w":"1"} {"v":"say\"hi\"","w":"2"} {"v":"psql\"a=b\"","w":"1"} {"v":"psql\"a=b\"","w":"2"} ` +
			`{"v":"https://ci/?a=1,b=2","w":"1"} {"v":"https://ci/?a=1,b=2","w":"2"} {"v":"a,b","w":"1"} {"v":"a,b","w":"2"} ` +
			`{"v":"a=b,c","w":"1"} {"v":"a=b,c","w":"2"}`},
	{"once in the last days of a slot of a year", `
		timeout 5 holdfast once a --cron "TZ=UTC $(LC_ALL=C date -u -d '+2 days' '+0 0 %d %m *')" -- true; echo $?`, "64"},
	{"standard output that is full, or not wanted", `
		for v in 'ls' 'ls --json' 'version' 'doctor' 'acquire a' '--help' 'run --help' 'completion bash'; do
			holdfast $v >/dev/full 2>/dev/null; echo $?
		done | sort -u; holdfast ls 1<>/dev/null; echo $?`, "74 0"},
	{"standard output without a reader", `
		mkfifo p; exec 7<>p; exec 8>p; exec 7<&-; holdfast run held -- sh -c '>has; exec sleep 1000' & until test -e has; do sleep .01; done
		for v in 'acquire x --try' 'acquire x --try --json' ls 'ls --json' 'show held' doctor version 'break held --yes'; do
			holdfast $v >&8 2>err; echo $? $(wc -l <err) $(holdfast show x 2>&1 | grep -c nobody)
		done | sort -u; holdfast run held -- holdfast ls --watch >&8 2>err; echo $? $(wc -l <err); wait`, "74 1 1 0 0"},

	// What it says on a terminal.
	{"break asks, and breaks after a yes alone", `
		holdfast run x -- sh -c '>has; exec sleep 1000' 2>/dev/null & until test -e has; do sleep .01; done
		echo y | script -qec 'holdfast break x >outcome 2>&1' /dev/null >/dev/null; echo $?; grep -c 'no terminal to ask on' outcome
		for keys in '\n' 'yesterday\n' '\004' '\003' 'y\n'; do
			>out; (until grep -q 'Break it? .y/N.' out; do sleep .01; done; printf $keys; sleep .5) | script -qefc 'holdfast break x >outcome' out >/dev/null
			echo $? $(grep -c '^holder .*/' out) $(holdfast show x >/dev/null 2>&1; echo $?) $(grep -c '^broken: "x" held by .* under token [0-9]*$' outcome)
		done; wait`, "64 1 1 1 0 0 1 1 0 0 1 1 0 0 130 1 0 0 0 1 1 1"},
	{"run reports once for whom it waits", `
		holdfast run x -- sh -c '>has; until test -e go; do sleep .01; done' & until test -e has; do sleep .01; done
		>out; script -qefc 'holdfast run x -- echo it is ours' out >/dev/null & until grep -q '^holdfast: waiting for "x" held by .* under token ' out; do sleep .01; done
		>go; wait $!; echo $?; grep -c waiting out; grep '^it is ours' out | tr -d '\r'`, "0 1 it is ours"},
}

// endsRow sends a signal to holdfast when its command runs, or it has begun to wait. Its parent,
// such as a shell in a loop or systemd, sees an end by that signal, and no exit code.
func endsRow(sig syscall.Signal) string {
	return `
		echo 'echo ready; exec sleep 1000' >sleeper; holdfast run held -- sh -c '>has; exec sleep 1000' & until test -e has; do sleep .01; done
		while read verb; do perl -e '
			$p = open(OUT, "-|") // die; if (!$p) { open STDERR, ">&", STDOUT; exec "holdfast", @ARGV } sysread OUT, $_, 99;
			kill ` + fmt.Sprint(int(sig)) + `, $p; waitpid $p, 0; print "$? of @ARGV\n" if ($? & 127) != ` + fmt.Sprint(int(sig)) + `' -- $verb
		done <<'END'
run a -- sh ./sleeper
once a --every 1h -- sh ./sleeper
elect a -- sh ./sleeper
run held -v -- true
elect held -v -- true
elect held --http 127.0.0.1:0
acquire held -v
wait held -v
ls --watch
ui --listen 127.0.0.1:0
END
		kill %1`
}

// bothKilledRow kills both processes at one stroke, as members of the group of a terminal, which
// the command has left. It prints whether a daemon of the command, which has run what is given in
// Perl, lives, and how an attempt to take the lock ends.
func bothKilledRow(perl string) string {
	return `
		cat >daemon <<'END'
echo $PPID >supervisor
perl -MPOSIX -e 'exit if fork; setsid; exit if fork; ` + perl + ` open F, ">pid"; print F $$; close F; sleep 1000'; exec sleep 1000
END
		script -qec 'exec holdfast run a -- setsid sh ./daemon' /dev/null >/dev/null & until test -s pid; do sleep .01; done
		s=$(cat supervisor); kill -9 -$(ps -o pgid= -p $s | tr -d ' '); wait $!
		while grep -q 'State:.[^Z]' /proc/$s/status; do sleep .01; done
		holdfast run a --try -- true; c=$?; grep -q 'State:.[^Z]' /proc/$(cat pid)/status && echo lives; echo $c; kill $(cat pid)`
}

func TestWrapper(t *testing.T) {
	for _, row := range wrapperRows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), "timeout", "-k1", "25", "bash", "-c", row.script)
			cmd.Dir = t.TempDir()
			cmd.Env = append(os.Environ(), "HOLDFAST_STORE=file:locks")
			cmd.WaitDelay = time.Second
			out, err := cmd.Output()
			if got := strings.Join(strings.Fields(string(out)), " "); got != row.want {
				t.Errorf("%q, want %q (%v)", got, row.want, err)
			}
		})
	}
}
