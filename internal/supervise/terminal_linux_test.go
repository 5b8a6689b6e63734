package supervise

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// runShell plays a shell with job control: it runs the rest of the scenario as the foreground
// job of its terminal, reports on descriptor 4 what becomes of it, and does with it what it
// reads from descriptor 5.
func (sc *scenario) runShell() int {
	sc.Shell = false
	text, err := json.Marshal(sc)
	if err != nil {
		panic(err)
	}
	events := os.NewFile(4, "tell")
	job := exec.Command("/proc/self/exe")
	job.Env = append(os.Environ(), scenarioEnv+"="+string(text))
	job.Stdin, job.Stdout, job.Stderr = os.Stdin, os.Stdout, os.Stderr
	job.SysProcAttr = &syscall.SysProcAttr{Foreground: true, Ctty: 0}
	if err := job.Start(); err != nil {
		panic(err)
	}
	signal.Ignore(unix.SIGTTOU)
	commands := bufio.NewScanner(os.NewFile(5, "orders"))
	for {
		var status unix.WaitStatus
		if _, err := unix.Wait4(job.Process.Pid, &status, unix.WUNTRACED, nil); err != nil {
			panic(err)
		}
		if !status.Stopped() {
			return endOf(status).code
		}
		foreground(unix.Getpgrp())
		fmt.Fprintln(events, "stopped")
		if !commands.Scan() {
			return 98
		}
		if commands.Text() == "fg" {
			foreground(job.Process.Pid)
		}
		if err := unix.Kill(-job.Process.Pid, unix.SIGCONT); err != nil {
			panic(err)
		}
	}
}

func foreground(group int) {
	if err := unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, group); err != nil {
		panic(err)
	}
}

// A terminalRun is a run on a terminal.
type terminalRun struct {
	*testRun
	keyboard      *os.File
	shellCommands *os.File
}

// startOnTerminal starts a run as the session leader of a new terminal.
func startOnTerminal(t *testing.T, sc scenario) *terminalRun {
	t.Helper()
	r := prepareRun(t, sc)
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	in, orders := pipe(t)
	r.cmd.ExtraFiles = append(r.cmd.ExtraFiles, in)
	r.cmd.Stdout.(*os.File).Close()
	r.cmd.Stdin, r.cmd.Stdout, r.cmd.Stderr = slave, slave, slave
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.waitInBackground()
	t.Cleanup(func() { orders.Close() })
	go io.Copy(io.Discard, master)
	return &terminalRun{r, master, orders}
}

func (s *terminalRun) typeKeys(keys string) {
	s.t.Helper()
	if _, err := s.keyboard.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

func (s *terminalRun) expectLine(want string) {
	s.t.Helper()
	if got := s.readLines(1)[0]; got != want {
		s.t.Fatalf("%q, want %q", got, want)
	}
}

const (
	ctrlC         = "\x03"
	ctrlZ         = "\x1a"
	ctrlBackslash = "\x1c"
)

// The terminal sends Ctrl-C to the command. It must not get a second one from the parent, which
// has got it too.
func TestCtrlCComesOnce(t *testing.T) {
	for keys, name := range map[string]string{ctrlC: "INT", ctrlBackslash: "QUIT"} {
		s := startOnTerminal(t, scenario{Shell: true, Args: shellArgs(`
			n=0; trap 'n=$((n+1)); echo ` + name + ` >&4' ` + name + `
			trap 'echo $n in all >&4; exit 7' USR1
			sleep 1000 & echo $PPID >&4; while :; do wait; done`)})
		parent := parentOf(parseInt(t, s.readLines(1)[0]))
		s.typeKeys(keys)
		s.expectLine(name)
		// What the parent passes on keeps its order.
		if err := unix.Kill(parent, unix.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		s.expectLine("1 in all")
		if code := s.exitCode(); code != 7 {
			t.Errorf("exit code %d", code)
		}
		s.outcome()
	}
}

func TestCtrlCWhileWaiting(t *testing.T) {
	s := startOnTerminal(t, scenario{Shell: true, Wait: true})
	s.readLines(1)
	s.typeKeys(ctrlC)
	if code := s.exitCode(); code != 128+2 {
		t.Errorf("exit code %d", code)
	}
}

// Ctrl-C comes when the supervisor, which is in the foreground group without a shell, does not
// handle signals yet.
func TestCtrlCAtTheStart(t *testing.T) {
	for range 10 {
		s := startOnTerminal(t, scenario{Wait: true})
		for len(childrenOf(s.cmd.Process.Pid)) == 0 {
		}
		s.typeKeys(ctrlC)
		if code := s.exitCode(); code != -int(unix.SIGINT) {
			t.Errorf("exit code %d", code)
		}
	}
}

// A job that is suspended keeps its lease, and goes on when it is continued.
func TestCtrlZ(t *testing.T) {
	t.Parallel()
	s := startOnTerminal(t, scenario{Shell: true, TTL: shortTTL, Args: shellArgs(`
		echo $$ >&4; read line; echo "read $line" >&4; exit 8`)})
	command := s.readLines(1)[0]
	s.typeKeys(ctrlZ)
	s.expectLine("stopped")
	s.waitState(command, "T")
	time.Sleep(s.scenario.TTL + time.Second)
	s.waitState(command, "T")
	if _, err := s.shellCommands.WriteString("fg\n"); err != nil {
		t.Fatal(err)
	}
	s.waitState(command, "S")
	s.typeKeys("hello\n")
	s.expectLine("read hello")
	if code := s.exitCode(); code != 8 {
		t.Errorf("exit code %d", code)
	}
	if v := s.outcome(); v.Result.Stopped {
		t.Errorf("%+v", v.Result)
	}
}

// Directly on a terminal, without a shell that could continue a job, Ctrl-Z stops no process.
func TestCtrlZWithoutShell(t *testing.T) {
	s := startOnTerminal(t, scenario{Args: shellArgs(`
		echo ready >&4; read line; echo "read $line" >&4; exit 8`)})
	s.expectLine("ready")
	s.typeKeys(ctrlZ)
	s.typeKeys("hello\n")
	s.expectLine("read hello")
	if code := s.exitCode(); code != 8 {
		t.Errorf("exit code %d", code)
	}
}

func TestWindowSize(t *testing.T) {
	s := startOnTerminal(t, scenario{Shell: true, Args: shellArgs(`
		trap 'stty size >&4; exit 0' WINCH
		echo ready >&4; while :; do sleep 0.01; done`)})
	s.expectLine("ready")
	size := &unix.Winsize{Row: 40, Col: 123}
	if err := unix.IoctlSetWinsize(int(s.keyboard.Fd()), unix.TIOCSWINSZ, size); err != nil {
		t.Fatal(err)
	}
	s.expectLine("40 123")
}

func parseInt(t *testing.T, text string) int {
	t.Helper()
	var n int
	if _, err := fmt.Sscan(strings.TrimSpace(text), &n); err != nil {
		t.Fatal(err)
	}
	return n
}
