package supervise

import (
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// shellArgs is a command of the shell.
func shellArgs(script string) []string { return []string{"/bin/sh", "-c", script} }

// stubborn is a tree that resists: every process in it ignores SIGTERM, one has made itself an
// orphan in a session of its own, and one is deep down. It writes a line for each of its four
// processes.
var stubborn = shellArgs(`
trap '' TERM INT HUP QUIT
(setsid sh -c 'echo orphan >&4; sleep 1000; :' &)
sh -c '(echo deep >&4; sleep 1000; :); :' &
sh -c 'echo child >&4; sleep 1000; :' &
echo root >&4
while :; do sleep 1000; done
`)

const stubbornLines = 4

// The command has the standard files and all other descriptors that the parent was given, under
// their numbers, none of ours, and the environment as it was.
func TestInheritance(t *testing.T) {
	script := `cat; echo; ls /proc/self/fd; env`
	r := prepareRun(t, scenario{Args: shellArgs(script)})
	plain := exec.Command("/bin/sh", "-c", script)
	plain.Env = append(r.cmd.Env, tagEnv+"="+r.scenario.Tag)
	plain.ExtraFiles = r.cmd.ExtraFiles
	plain.Stdin = strings.NewReader("from stdin")
	want, err := plain.Output()
	if err != nil {
		t.Fatal(err)
	}

	in, out := pipe(t)
	r.cmd.Stdin = in
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.waitInBackground()
	if _, err := out.WriteString("from stdin"); err != nil {
		t.Fatal(err)
	}
	out.Close()
	got, err := io.ReadAll(r.out)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("under supervision:\n%s\nwithout:\n%s", got, want)
	}
}

func TestSignalsReachTheGroup(t *testing.T) {
	for _, sig := range []unix.Signal{
		unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH,
	} {
		name := strings.TrimPrefix(unix.SignalName(sig), "SIG")
		r := startRun(t, scenario{Args: shellArgs(`
			trap 'echo root got >&4; exit 3' ` + name + `
			sh -c 'trap "echo child got >&4; exit" ` + name + `
				echo ready >&4; while :; do sleep 0.01; done' | cat
			echo root got nothing >&4`)})
		r.readLines(1)
		r.sendSignal(sig)
		if got := strings.Join(r.readLines(2), ", "); got != "child got, root got" {
			t.Errorf("%v: %s", sig, got)
		}
		if code := r.exitCode(); code != 3 {
			t.Errorf("%v: exit code %d", sig, code)
		}
		r.outcome()
	}
}

func TestStopAndContinueReachTheGroup(t *testing.T) {
	r := startRun(t, scenario{Args: shellArgs(`echo $$ >&4; exec sleep 1000`)})
	pid := r.readLines(1)[0]
	r.sendSignal(unix.SIGTSTP)
	r.waitState(pid, "T")
	r.sendSignal(unix.SIGCONT)
	r.waitState(pid, "S")
}

// waitState waits until a process is in a state.
func (r *testRun) waitState(pid, want string) {
	r.t.Helper()
	var stat []byte
	for began := time.Now(); time.Since(began) < testTimeout; time.Sleep(time.Millisecond) {
		var err error
		if stat, err = readProcFile("/proc/" + pid + "/stat"); err != nil {
			r.t.Fatal(err)
		}
		if _, fields, _ := strings.Cut(string(stat), ") "); strings.HasPrefix(fields, want) {
			return
		}
	}
	r.t.Fatalf("process %s is not in state %s: %s", pid, want, stat)
}

func TestWhatIsLeftBehindEnds(t *testing.T) {
	r := startRun(t, scenario{Args: shellArgs(`
		there=` + t.TempDir() + `
		(setsid sh -c 'trap "" TERM; >$1/a; sleep 1000; :' sh $there &)
		sh -c '>$1/b; sleep 1000; :' sh $there &
		until test -e $there/a -a -e $there/b; do sleep 0.01; done
		exit 5`)})
	if code := r.exitCode(); code != 5 {
		t.Errorf("exit code %d", code)
	}
	r.mustHaveNoSurvivors()
	r.outcome()
}

func TestWhatIsLeftBehindMayFinish(t *testing.T) {
	r := startRun(t, scenario{KillAfter: testTimeout, Args: shellArgs(`(sleep 0.05; echo finished >&4) & exit 0`)})
	if got := r.readLines(1)[0]; got != "finished" {
		t.Error(got)
	}
	r.outcome()
}

func TestSupervisorKilled(t *testing.T) {
	for _, sig := range []unix.Signal{unix.SIGKILL, unix.SIGSEGV} {
		r := startRun(t, scenario{Args: stubborn})
		r.readLines(stubbornLines)
		if err := unix.Kill(r.supervisorPID(), sig); err != nil {
			t.Fatal(err)
		}
		if code := r.exitCode(); code != 121 {
			t.Errorf("exit code %d", code)
		}
		r.mustHaveNoSurvivors()
	}
}

func TestSupervisorSurvivesSignalsToTheWholeService(t *testing.T) {
	r := startRun(t, scenario{Args: shellArgs(`trap 'echo got >&4' TERM; echo ready >&4; while :; do sleep 0.01; done`)})
	r.readLines(1)
	for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGPIPE} {
		if err := unix.Kill(r.supervisorPID(), sig); err != nil {
			t.Fatal(err)
		}
	}
	r.sendSignal(unix.SIGTERM)
	r.readLines(1)
}

// A lease that is not renewed, because the store does not answer, or because the supervisor is
// stopped or hangs: all must have been killed while it is good.
func TestDeadline(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]scenario{
		"not renewed":        {Args: stubborn, TTL: shortTTL, NoRenew: true},
		"supervisor stopped": {Args: stubborn, TTL: shortTTL, NoRenew: true},
		"supervisor hung":    {Args: stubborn, TTL: shortTTL, Hang: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRun(t, o)
			r.readLines(stubbornLines)
			if name == "supervisor stopped" {
				if err := unix.Kill(r.supervisorPID(), unix.SIGSTOP); err != nil {
					t.Fatal(err)
				}
			}
			// The lease began before that, and is not renewed.
			time.Sleep(o.TTL)
			for _, stat := range taggedProcesses(r.scenario.Tag) {
				if !hasPendingKill(stat) {
					t.Errorf("still alive: %q", stat)
				}
			}
			if code := r.exitCode(); code != 121 {
				t.Errorf("exit code %d", code)
			}
			r.mustHaveNoSurvivors()
		})
	}
}

func TestSupervisorStoppedForAMoment(t *testing.T) {
	t.Parallel()
	r := startRun(t, scenario{Args: shellArgs(`echo ready >&4; sleep 1; echo done >&4; exit 4`)})
	r.readLines(1)
	supervisor := r.supervisorPID()
	if err := unix.Kill(supervisor, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	r.readLines(1)
	if err := unix.Kill(supervisor, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if code := r.exitCode(); code != 4 {
		t.Errorf("exit code %d", code)
	}
}

// A parent that was stopped while the lease was renewed many times must not take what it missed
// for a hung supervisor.
func TestParentStoppedAndContinued(t *testing.T) {
	t.Parallel()
	r := startRun(t, scenario{Args: shellArgs(`echo ready >&4; sleep 7; echo done >&4; exit 6`), TTL: shortTTL})
	r.readLines(1)
	r.sendSignal(unix.SIGSTOP)
	r.readLines(1)
	r.sendSignal(unix.SIGCONT)
	if code := r.exitCode(); code != 6 {
		t.Errorf("exit code %d", code)
	}
	if v := r.outcome(); v.Result.Stopped {
		t.Errorf("%+v", v.Result)
	}
}

func TestLeaseNotRenewedSIGTERMFirst(t *testing.T) {
	t.Parallel()
	r := startRun(t, scenario{
		Args: shellArgs(`trap 'exit 9' TERM; echo ready >&4; while :; do sleep 0.01; done`),
		TTL:  shortTTL, KillAfter: 3 * time.Second, NoRenew: true,
	})
	r.readLines(1)
	r.exitCode()
	if v := r.outcome(); !v.Result.Stopped || v.Result.Code != 9 {
		t.Errorf("%+v", v.Result)
	}
}

func TestLeaseBroken(t *testing.T) {
	t.Parallel()
	r := startRun(t, scenario{Args: stubborn, LoseAt: time.Second})
	r.readLines(stubbornLines)
	r.exitCode()
	if v := r.outcome(); !v.Result.Stopped || v.Result.Code != 128+9 {
		t.Errorf("%+v", v.Result)
	}
}

// SIGTERM reaches a process deep down, in a session of its own.
func TestSIGTERMReachesEveryProcess(t *testing.T) {
	t.Parallel()
	r := startRun(t, scenario{LoseAt: time.Second, KillAfter: testTimeout, Args: shellArgs(`
		sh -c 'setsid sh -c "trap \"echo got >&4; exit\" TERM; echo ready >&4; while :; do sleep 0.01; done" & wait' & wait`)})
	if got := strings.Join(r.readLines(2), " "); got != "ready got" {
		t.Error(got)
	}
	r.outcome()
}
