package command

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// wrappers are what a command is started by. The script of a row finds it in $W.
var wrappers = []struct{ name, prefix string }{
	{"direct", ""},
	{"env", "env"},
	{"timeout", "timeout 60"},
	{"setsid -w", "setsid -w"},
	{"flock", "flock lock"},
	{"holdfast run", "holdfast run x --"},
}

// ignored is a script that prints which of the signals of a mask, which follows, are ignored. The
// test may have been started with others ignored.
const ignored = `; has=$($W sed -n 's/SigIgn:.//p' /proc/self/status); printf 'SigIgn: %x' $((0x$has & `

// containerProfile has a command run with a filter that refuses what the default profiles of
// container engines refuse: to make and enter namespaces, to mount, clone3, keys, bpf, io_uring and
// the like.
const containerProfile = `perl -e '
	@refused = (135, 153, 155, 163, 165 .. 177, 246, 248 .. 250, 272, 298, 304, 308, 313, 320, 321, 323, 425 .. 427, 435, 442);
	$p = pack "SCCL", 0x20, 0, 0, 0;
	$p .= pack "SCCLSCCL", 0x15, 0, 1, $_, 6, 0, 0, 0x50000 | ($_ == 435 ? 38 : 1) for @refused;
	$p .= pack "SCCL", 6, 0, 0, 0x7fff0000;
	if ((split " ", qx(uname -m))[0] eq "x86_64") { syscall 157, 38, 1, 0, 0, 0; syscall(157, 22, 2, pack("SxxxxxxP", length($p) / 8, $p), 0, 0) == 0 or die "$!" }
	exec @ARGV' `

// comparisonRows are what a command, or its parent, can notice: a script for bash that prints it.
// Where it differs between a direct start and holdfast, there is a reason.
var comparisonRows = []struct{ name, script, reason string }{
	{"exit code 7", `$W sh -c 'exit 7'; echo $?`, ""},
	{"the command kills itself by SIGKILL", status(`>ready; kill -9 $$`, ""), "a shell's code: only a signal that holdfast got, too, ends it"},
	{"SIGTERM to the wrapper", status(`>ready; exec sleep 9`, "TERM"), ""},
	{"SIGINT to the wrapper", status(`>ready; exec sleep 9`, "INT"), ""},
	{"SIGTERM, handled with code 3", status(`trap "exit 3" TERM; >ready; while :; do sleep .01; done`, "TERM"), ""},
	{"the wrapper is killed", `$W sh -c 'echo $$ >pid; exec sleep 9' & until test -s pid; do sleep .01; done
		kill -9 $!; wait $!; sleep .3; kill -0 $(cat pid) && { echo the command lives; kill $(cat pid); } || echo the command dies`, ""},
	{"what it leaves behind", `$W sh -c 'sleep 9 & echo $! >pid'; kill $(cat pid) && echo lives || echo ends`,
		"the lock is free when all have ended"},
	{"SIGHUP and SIGINT ignored", `trap "" HUP INT` + ignored + `3))`, ""},
	{"SIGTERM, SIGPIPE, SIGUSR1 ignored", `trap "" TERM PIPE USR1` + ignored + `0x5200))`,
		"the Go runtime does not tell what was ignored"},
	{"blocked signals", `perl -MPOSIX -e 'sigprocmask(SIG_BLOCK, POSIX::SigSet->new(SIGUSR1, SIGTERM)); exec @ARGV' \
		$W grep SigBlk /proc/self/status`, "the Go runtime unblocks SIGTERM"},
	{"process group", `test $($W sh -c 'ps -o pgid= -p $$') = $(ps -o pgid= -p $$) && echo that of the caller || echo its own`,
		"so that a signal reaches all of it; on a terminal it is that of the caller"},
	{"process group on a terminal", onTerminal(`$W sh -c 'test $(ps -o tpgid= -p $$) = $(ps -o pgid= -p $$) && echo foreground || echo background'`), ""},
	{"session", `test $($W sh -c 'ps -o sid= -p $$') = $(ps -o sid= -p $$) && echo that of the caller || echo its own`, ""},
	{"controlling terminal", onTerminal(`$W sh -c ': 2>/dev/null >/dev/tty && echo one || echo none'`), ""},
	{"parent process", `test $($W sh -c 'echo $PPID') = $$ && echo the caller || echo the wrapper`, "it is the supervisor"},
	{"umask, limits", `umask 27; ulimit -n 99; ulimit -c 7; $W bash -c 'umask; ulimit -a'`, ""},
	{"nice, affinity, OOM score", `nice -n 5 $W sh -c 'nice; grep Cpus_allowed: /proc/self/status; cat /proc/self/oom_score_adj'`, ""},
	{"privileges, seccomp", `$W grep -E '^(Cap|NoNew|Seccomp|Uid|Groups)' /proc/self/status`, ""},
	{"working directory", `mkdir d; cd d; $W pwd | grep -o '[^/]*$'`, ""},
	{"argv[0]", `$W head -c 4 /proc/self/cmdline`, ""},
	{"environment", `diff <(env | cut -d= -f1 | sort) <($W env | cut -d= -f1 | sort) | grep '^>' | tr -d '>'; echo nothing else`,
		"the names of the lock"},
	{"found by PATH", `mkdir d; printf '#!/bin/sh\necho found' >d/mine; chmod +x d/mine; PATH=$PWD/d:$PATH $W mine`, ""},
	{"found by a dot in PATH", `printf '#!/bin/sh\necho found' >mine; chmod +x mine; PATH=.:$PATH $W mine`, ""},
	{"no PATH", `W=$W; set -- $W; w=$(command -v $1); shift; unset PATH; $w "$@" ls -d / 2>/dev/null; echo $?`, ""},
	{"a script without #!", `printf 'echo runs' >job; chmod +x job; $W ./job`, ""},
	{"no such command", `$W ./nothing 2>/dev/null; echo $?`, ""},
	{"not executable", `>job; $W ./job 2>/dev/null; echo $?`, ""},
	{"open descriptors", `exec 5</dev/null; n=$($W sh -c 'ls /proc/$$/fd' | wc -w); echo $((n - $(sh -c 'ls /proc/$$/fd' | wc -w))) more`,
		"the file store's: the lock is not free while a descendant has it open"},
	{"closed 0, 1 and 2", `$W sh -c 'for i in 0 1 2; do test -e /proc/$$/fd/$i && echo $i is open >&9; done; echo no other >&9' 9>&1 <&- >&- 2>&-`,
		"the Go runtime opens /dev/null there"},
	{"/dev/null opened read-write", `$W sh -c 'grep flags /proc/$$/fdinfo/0' <>/dev/null`, ""},
	{"stdin of a pipeline", `seq 99999 | $W cksum`, ""},
	{"order of output", `$W sh -c 'echo 1; echo 2 >&2; echo 3' 2>&1`, ""},
	{"sockets and watchdog of systemd", `sh -c 'LISTEN_PID=$$ WATCHDOG_PID=$$ exec $W sh -c "test \$LISTEN_PID\$WATCHDOG_PID = \$\$\$\$ && echo found || echo not found"'`, ""},
	{"variables that a shell cannot name", `env a.b=1 $W env | grep a.b; sh -c 'LISTEN_PID=$$ exec env a.b=1 $W env' | grep a.b`,
		"beside LISTEN_PID or WATCHDOG_PID they are gone: sh sets these"},
	{"executed by a shell with children", `timeout 3 bash -c 'sleep 9 & exec $W sh -c "exit 5"'; echo $?`, ""},
	{"process 1 of a namespace", `unshare -rpf --mount-proc $W sh -c 'exit 5'; echo $?`, ""},
	{"nohup", `nohup $W sh -c 'kill -HUP $$; echo lives' 2>/dev/null </dev/null`, ""},
	{"make -j", `printf 'all:\n\t+@$$W $(MAKE) -f sub\n' >Makefile; printf 'all: a b\na b:\n\t@echo $@\n' >sub; make -sj2 2>&1 | sort`, ""},
	{"xargs -P", `seq 4 | xargs -P4 -I{} $W echo {} | sort`, ""},
	{"cron's environment", `env -i HOME=$PWD SHELL=/bin/sh PATH=$PATH $W sh -c 'echo $HOME $SHELL' | sed "s,$PWD,,"`, ""},
	{"as nobody", `unshare -U $W id -u`, ""},
	{"the seccomp profile of container engines", containerProfile + `$W sh -c 'unshare -U true 2>/dev/null || echo $(setsid sh -c "sleep 9 & echo works")'`, ""},
	{"a terminal hangs up, as of ssh -t", `SHELL=/bin/bash script -qec "$W sh -c 'trap \"echo HUP >>got\" HUP; >ready
		until test -s got; do sleep .01; done; sleep .3; >end'" /dev/null >/dev/null & until test -e ready; do sleep .01; done
		kill -9 $!; until test -e end; do sleep .01; done; cat got`, ""},
	{"SIGINT by kill to a foreground job", onTerminal(`(until test -e ready; do sleep .01; done; kill -INT $(cat wrapper); sleep .3; >end) &
		sh -c 'echo $$ >wrapper; exec $W sh -c "trap \"echo INT >>got\" INT; >ready; until test -e end; do sleep .01; done"'; cat got 2>/dev/null`),
		"the Go runtime does not tell who has sent it: Ctrl-C would come twice"},
	{"script(1)", `script -qec "$W tty" /dev/null | cut -c1-9`, ""},
}

// status prints how a wrapper of a shell script ends. The script makes a file, ready, when a signal
// may be sent, if there is one.
func status(script, sig string) string {
	return `perl -e '$p = fork // die; if (!$p) { exec @ARGV } until (-e "ready") { select undef, undef, undef, .01 }
		kill "` + sig + `", $p if "` + sig + `"; waitpid $p, 0; print $? & 127 ? "signal ".($? & 127) : "code ".($? >> 8)' $W sh -c '` + script + `'`
}

// onTerminal runs a script on a terminal, by a shell with job control.
func onTerminal(script string) string {
	return `cat >job <<'END'
set -m
` + script + `
END
script -qec "bash job" /dev/null`
}

const (
	comparisonPath  = "../../docs/wrappers.md"
	comparisonBegin = "<!-- comparison, by TestComparison -->\n"
	comparisonEnd   = "<!-- end of comparison -->\n"
)

// TestComparison compares holdfast run with a direct start, as its page does.
func TestComparison(t *testing.T) {
	table := "| |"
	for _, w := range wrappers {
		table += " " + w.name + " |"
	}
	table += " why holdfast differs |\n|---" + strings.Repeat("|---", len(wrappers)+1) + "|\n"
	text, err := os.ReadFile(comparisonPath)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), comparisonBegin)
	current, after, closed := strings.Cut(rest, comparisonEnd)
	if !found || !closed {
		t.Fatal("there is no table")
	}
	for _, row := range comparisonRows {
		direct := ""
		table += "| " + row.name + " |"
		for i, w := range wrappers {
			if !*updateReference && i > 0 && i < len(wrappers)-1 {
				continue // the others have several versions
			}
			value := runWrapped(t, w.prefix, row.script)
			shown := value
			switch {
			case i == 0:
				direct = value
				if len(value) > 30 {
					shown = "as it is"
				}
			case value == direct:
				shown = "same"
			case value == "":
				shown = "nothing"
			}
			table += " " + strings.ReplaceAll(shown, "|", "\\|") + " |"
			if w.name == "holdfast run" {
				if (value == direct) != (row.reason == "") {
					t.Errorf("%s: %q, and a direct start %q; the reason: %q", row.name, value, direct, row.reason)
				}
				_, shownRow, _ := strings.Cut(current, "\n| "+row.name+" | ")
				shownRow, _, _ = strings.Cut(shownRow, "\n")
				if !*updateReference && !strings.HasSuffix(shownRow, " "+shown+" | "+row.reason+" |") {
					t.Errorf("the page has %q in the row %s: go test ./internal/command -run TestComparison -update", shownRow, row.name)
				}
			}
		}
		table += " " + row.reason + " |\n"
	}
	if *updateReference {
		if err := os.WriteFile(comparisonPath, []byte(before+comparisonBegin+table+comparisonEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// runWrapped runs the script of a row in a folder of its own, and returns what it prints on one
// line.
func runWrapped(t *testing.T, prefix, script string) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "timeout", "-k1", "20", "bash", "-c", script)
	cmd.Dir, cmd.WaitDelay = dir, time.Second
	cmd.Env = append(os.Environ(), "MAKEFLAGS=", "MAKELEVEL=", "W="+prefix, "HOLDFAST_STORE=file:"+filepath.Join(t.TempDir(), "locks"))
	out, _ := cmd.Output() // a row may end with any code
	return strings.Join(strings.Fields(strings.ReplaceAll(string(out), "\x00", " ")), " ")
}
