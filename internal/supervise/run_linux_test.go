package supervise

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// sh is a command of the shell.
func sh(script string) []string { return []string{"/bin/sh", "-c", script} }

// stubborn is a tree that does not want to die: nobody in it minds SIGTERM, one
// has made himself an orphan in a session of his own, and one is deep down. It
// writes a line for each of its four processes.
var stubborn = sh(`
trap '' TERM INT HUP QUIT
(setsid sh -c 'echo orphan >&4; sleep 1000; :' &)
sh -c '(echo deep >&4; sleep 1000; :); :' &
sh -c 'echo child >&4; sleep 1000; :' &
echo root >&4
while :; do sleep 1000; done
`)

const stubbornLines = 4

func TestExitCode(t *testing.T) {
	for script, want := range map[string]int{
		"exit 0": 0, "exit 1": 1, "exit 77": 77, "exit 255": 255,
		"kill -KILL $$": 128 + 9, "kill -TERM $$": 128 + 15, "kill -INT $$": 128 + 2,
	} {
		r := begin(t, order{Args: sh(script)})
		if got := r.code(); got != want {
			t.Errorf("%s: exit code %d, want %d", script, got, want)
		}
		if v := r.verdict(); v.Result.Stopped || !v.Result.Lost.IsZero() {
			t.Errorf("%s: %+v", script, v.Result)
		}
	}
}

func TestCommandThatCannotBeStarted(t *testing.T) {
	r := begin(t, order{Args: []string{"/nonexistent"}})
	r.code()
	if v := r.verdict(); v.Err != unix.ENOENT.Error() {
		t.Errorf("error %q", v.Err)
	}
}

// The command has the standard files and all other descriptors that the front was
// given, under their numbers, none of ours, and the environment as it was.
func TestInheritance(t *testing.T) {
	script := `cat; echo; ls /proc/self/fd; env`
	r := prepare(t, order{Args: sh(script)})
	plain := exec.Command("/bin/sh", "-c", script)
	plain.Env = append(r.cmd.Env, tagName+"="+r.order.Tag)
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
	r.follow()
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
		r := begin(t, order{Args: sh(`
			trap 'echo root got >&4; exit 3' ` + name + `
			sh -c 'trap "echo child got >&4; exit" ` + name + `
				echo ready >&4; while :; do sleep 0.01; done' | cat
			echo root got nothing >&4`)})
		r.lines(1)
		r.signal(sig)
		if got := strings.Join(r.lines(2), ", "); got != "child got, root got" {
			t.Errorf("%v: %s", sig, got)
		}
		if code := r.code(); code != 3 {
			t.Errorf("%v: exit code %d", sig, code)
		}
		r.verdict()
	}
}

func TestStopAndContinueReachTheGroup(t *testing.T) {
	r := begin(t, order{Args: sh(`echo $$ >&4; exec sleep 1000`)})
	pid := r.lines(1)[0]
	r.signal(unix.SIGTSTP)
	r.state(pid, "T")
	r.signal(unix.SIGCONT)
	r.state(pid, "S")
}

// state waits until a process is in a state.
func (r *run) state(pid, want string) {
	r.t.Helper()
	var stat []byte
	for began := time.Now(); time.Since(began) < patience; time.Sleep(time.Millisecond) {
		var err error
		if stat, err = content("/proc/" + pid + "/stat"); err != nil {
			r.t.Fatal(err)
		}
		if _, fields, _ := strings.Cut(string(stat), ") "); strings.HasPrefix(fields, want) {
			return
		}
	}
	r.t.Fatalf("process %s is not in state %s: %s", pid, want, stat)
}

func TestSignalWhileWaiting(t *testing.T) {
	for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT} {
		r := begin(t, order{Wait: true})
		r.lines(1)
		r.signal(sig)
		if code := r.code(); code != 128+int(sig) {
			t.Errorf("%v: exit code %d", sig, code)
		}
		r.wait(r.gone(), "the end of the keeper")
	}
}

func TestWhatIsLeftBehindEnds(t *testing.T) {
	r := begin(t, order{Args: sh(`
		there=` + t.TempDir() + `
		(setsid sh -c 'trap "" TERM; >$1/a; sleep 1000; :' sh $there &)
		sh -c '>$1/b; sleep 1000; :' sh $there &
		until test -e $there/a -a -e $there/b; do sleep 0.01; done
		exit 5`)})
	if code := r.code(); code != 5 {
		t.Errorf("exit code %d", code)
	}
	r.mustBeEmpty()
	r.verdict()
}

func TestWhatIsLeftBehindMayFinish(t *testing.T) {
	r := begin(t, order{KillAfter: patience, Args: sh(`(sleep 0.05; echo finished >&4) & exit 0`)})
	if got := r.lines(1)[0]; got != "finished" {
		t.Error(got)
	}
	r.verdict()
}

func TestFrontKilled(t *testing.T) {
	r := begin(t, order{Args: stubborn})
	r.lines(stubbornLines)
	r.signal(unix.SIGKILL)
	if v := r.verdict(); !v.Result.Abandoned {
		t.Errorf("%+v", v.Result)
	}
}

func TestKeeperKilled(t *testing.T) {
	for _, sig := range []unix.Signal{unix.SIGKILL, unix.SIGSEGV} {
		r := begin(t, order{Args: stubborn})
		r.lines(stubbornLines)
		if err := unix.Kill(r.keeper(), sig); err != nil {
			t.Fatal(err)
		}
		if code := r.code(); code != 121 {
			t.Errorf("exit code %d", code)
		}
		r.mustBeEmpty()
	}
}

func TestKeeperSurvivesSignalsToTheWholeService(t *testing.T) {
	r := begin(t, order{Args: sh(`trap 'echo got >&4' TERM; echo ready >&4; while :; do sleep 0.01; done`)})
	r.lines(1)
	for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGPIPE} {
		if err := unix.Kill(r.keeper(), sig); err != nil {
			t.Fatal(err)
		}
	}
	r.signal(unix.SIGTERM)
	r.lines(1)
}

// A lease that is not renewed, because the store does not answer, or because the
// keeper is stopped or hangs: all must have been killed while it is good.
func TestDeadline(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]order{
		"not renewed":    {Args: stubborn, TTL: shortTTL, NoRenew: true},
		"keeper stopped": {Args: stubborn, TTL: shortTTL, NoRenew: true},
		"keeper hung":    {Args: stubborn, TTL: shortTTL, Hang: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := begin(t, o)
			r.lines(stubbornLines)
			if name == "keeper stopped" {
				if err := unix.Kill(r.keeper(), unix.SIGSTOP); err != nil {
					t.Fatal(err)
				}
			}
			// The lease began before that, and is not renewed.
			time.Sleep(o.TTL)
			for _, stat := range survivors(r.order.Tag) {
				if !killed(stat) {
					t.Errorf("still alive: %q", stat)
				}
			}
			if code := r.code(); code != 121 {
				t.Errorf("exit code %d", code)
			}
			r.mustBeEmpty()
		})
	}
}

func TestKeeperStoppedForAMoment(t *testing.T) {
	t.Parallel()
	r := begin(t, order{Args: sh(`echo ready >&4; sleep 1; echo done >&4; exit 4`)})
	r.lines(1)
	keeper := r.keeper()
	if err := unix.Kill(keeper, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	r.lines(1)
	if err := unix.Kill(keeper, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if code := r.code(); code != 4 {
		t.Errorf("exit code %d", code)
	}
}

// A front that was stopped while the lease was renewed many times must not take
// what it missed for a hung keeper.
func TestFrontStoppedAndContinued(t *testing.T) {
	t.Parallel()
	r := begin(t, order{Args: sh(`echo ready >&4; sleep 7; echo done >&4; exit 6`), TTL: shortTTL})
	r.lines(1)
	r.signal(unix.SIGSTOP)
	r.lines(1)
	r.signal(unix.SIGCONT)
	if code := r.code(); code != 6 {
		t.Errorf("exit code %d", code)
	}
	if v := r.verdict(); v.Result.Stopped {
		t.Errorf("%+v", v.Result)
	}
}

func TestLeaseNotRenewedSIGTERMFirst(t *testing.T) {
	t.Parallel()
	r := begin(t, order{
		Args: sh(`trap 'exit 9' TERM; echo ready >&4; while :; do sleep 0.01; done`),
		TTL:  shortTTL, KillAfter: 3 * time.Second, NoRenew: true,
	})
	r.lines(1)
	r.code()
	if v := r.verdict(); !v.Result.Stopped || v.Result.Code != 9 {
		t.Errorf("%+v", v.Result)
	}
}

func TestLeaseBroken(t *testing.T) {
	t.Parallel()
	r := begin(t, order{Args: stubborn, LoseAt: time.Second})
	r.lines(stubbornLines)
	r.code()
	if v := r.verdict(); !v.Result.Stopped || v.Result.Lost.IsZero() || v.Result.Code != 128+9 {
		t.Errorf("%+v", v.Result)
	}
}

func TestLeaseIgnored(t *testing.T) {
	t.Parallel()
	r := begin(t, order{Args: sh("sleep 2; exit 3"), TTL: time.Second, NoRenew: true, Ignore: true})
	if code := r.code(); code != 3 {
		t.Errorf("exit code %d", code)
	}
	if v := r.verdict(); v.Result.Stopped || v.Result.Lost.IsZero() {
		t.Errorf("%+v", v.Result)
	}
}

// Whoever runs away by ever new processes, each in a session of its own, and
// whoever forks as fast as he can, is caught all the same.
func TestForkStorm(t *testing.T) {
	hop := t.TempDir() + "/hop"
	if err := os.WriteFile(hop, []byte(`/bin/sh "$0" &`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, script := range map[string]string{
		"runner": `setsid sh ` + hop + ` & echo ready >&4; sleep 1000`,
		"swarm": `for i in 1 2 3 4 5 6 7 8; do (while :; do (:) & done) & done
			for i in 1 2 3 4; do setsid sh -c 'while :; do (sleep 1) & wait; done' & done
			echo ready >&4; sleep 1000`,
	} {
		t.Run(name, func(t *testing.T) {
			r := begin(t, order{Args: sh(script)})
			r.lines(1)
			r.signal(unix.SIGKILL)
			r.verdict()
		})
	}
}

// What the keeper says is written by the front.
func TestMessages(t *testing.T) {
	r := begin(t, order{Say: "hello", Args: sh("exit 0")})
	r.code()
	if text, err := io.ReadAll(r.out); err != nil || string(text) != "hello" {
		t.Errorf("%q, %v", text, err)
	}
}
