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

// shell plays a shell with job control: it runs the rest of the order as the
// foreground job of its terminal, tells on descriptor 4 what becomes of it, and
// does with it what it reads from descriptor 5.
func (o *order) shell() int {
	o.Shell = false
	text, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	tell := os.NewFile(4, "tell")
	job := exec.Command("/proc/self/exe")
	job.Env = append(os.Environ(), orderName+"="+string(text))
	job.Stdin, job.Stdout, job.Stderr = os.Stdin, os.Stdout, os.Stderr
	job.SysProcAttr = &syscall.SysProcAttr{Foreground: true, Ctty: 0}
	if err := job.Start(); err != nil {
		panic(err)
	}
	signal.Ignore(unix.SIGTTOU)
	orders := bufio.NewScanner(os.NewFile(5, "orders"))
	for {
		var status unix.WaitStatus
		if _, err := unix.Wait4(job.Process.Pid, &status, unix.WUNTRACED, nil); err != nil {
			panic(err)
		}
		if !status.Stopped() {
			return exitCode(status)
		}
		foreground(unix.Getpgrp())
		fmt.Fprintln(tell, "stopped")
		if !orders.Scan() {
			return 98
		}
		if orders.Text() == "fg" {
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

// A screen is a run on a terminal.
type screen struct {
	*run
	keyboard *os.File
	orders   *os.File
}

// beginOnTerminal starts a run as the session leader of a new terminal.
func beginOnTerminal(t *testing.T, o order) *screen {
	t.Helper()
	r := prepare(t, o)
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
	r.follow()
	t.Cleanup(func() { orders.Close() })
	go io.Copy(io.Discard, master)
	return &screen{r, master, orders}
}

func (s *screen) press(keys string) {
	s.t.Helper()
	if _, err := s.keyboard.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

func (s *screen) expect(want string) {
	s.t.Helper()
	if got := s.lines(1)[0]; got != want {
		s.t.Fatalf("%q, want %q", got, want)
	}
}

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
	quit  = "\x1c"
)

// The terminal sends Ctrl-C to the command. It must not get a second one from
// the front, which has got it too.
func TestCtrlCComesOnce(t *testing.T) {
	for keys, name := range map[string]string{ctrlC: "INT", quit: "QUIT"} {
		s := beginOnTerminal(t, order{Shell: true, Args: sh(`
			n=0; trap 'n=$((n+1)); echo ` + name + ` >&4' ` + name + `
			trap 'echo $n in all >&4; exit 7' USR1
			sleep 1000 & echo $PPID >&4; while :; do wait; done`)})
		front := parentOf(number(t, s.lines(1)[0]))
		s.press(keys)
		s.expect(name)
		// What the front passes on keeps its order.
		if err := unix.Kill(front, unix.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		s.expect("1 in all")
		if code := s.code(); code != 7 {
			t.Errorf("exit code %d", code)
		}
		s.verdict()
	}
}

func TestCtrlCWhileWaiting(t *testing.T) {
	s := beginOnTerminal(t, order{Shell: true, Wait: true})
	s.lines(1)
	s.press(ctrlC)
	if code := s.code(); code != 128+2 {
		t.Errorf("exit code %d", code)
	}
}

// A job that is suspended keeps its lease, and goes on when it is continued.
func TestCtrlZ(t *testing.T) {
	t.Parallel()
	s := beginOnTerminal(t, order{Shell: true, TTL: shortTTL, Args: sh(`
		echo $$ >&4; read line; echo "read $line" >&4; exit 8`)})
	command := s.lines(1)[0]
	s.press(ctrlZ)
	s.expect("stopped")
	s.state(command, "T")
	time.Sleep(s.order.TTL + time.Second)
	s.state(command, "T")
	if _, err := s.orders.WriteString("fg\n"); err != nil {
		t.Fatal(err)
	}
	s.state(command, "S")
	s.press("hello\n")
	s.expect("read hello")
	if code := s.code(); code != 8 {
		t.Errorf("exit code %d", code)
	}
	if v := s.verdict(); v.Result.Stopped {
		t.Errorf("%+v", v.Result)
	}
}

// Right on a terminal, with no shell to wake anybody, Ctrl-Z stops nobody.
func TestCtrlZWithoutShell(t *testing.T) {
	s := beginOnTerminal(t, order{Args: sh(`
		echo ready >&4; read line; echo "read $line" >&4; exit 8`)})
	s.expect("ready")
	s.press(ctrlZ)
	s.press("hello\n")
	s.expect("read hello")
	if code := s.code(); code != 8 {
		t.Errorf("exit code %d", code)
	}
}

func TestWindowSize(t *testing.T) {
	s := beginOnTerminal(t, order{Shell: true, Args: sh(`
		trap 'stty size >&4; exit 0' WINCH
		echo ready >&4; while :; do sleep 0.01; done`)})
	s.expect("ready")
	size := &unix.Winsize{Row: 40, Col: 123}
	if err := unix.IoctlSetWinsize(int(s.keyboard.Fd()), unix.TIOCSWINSZ, size); err != nil {
		t.Fatal(err)
	}
	s.expect("40 123")
}

func number(t *testing.T, text string) int {
	t.Helper()
	var n int
	if _, err := fmt.Sscan(strings.TrimSpace(text), &n); err != nil {
		t.Fatal(err)
	}
	return n
}
