package command

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
)

// A console is a terminal that the test plays, with a holdfast as the leader of its session.
type console struct {
	t      *testing.T
	cmd    *exec.Cmd
	master *os.File
	ended  chan struct{}

	mu  sync.Mutex
	all []byte // that was written
}

// newConsole prepares a terminal for "holdfast ARGS".
func newConsole(t *testing.T, store string, columns, rows int, args ...string) *console {
	t.Helper()
	acceptSignals()
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := pty.Setsize(master, &pty.Winsize{Cols: uint16(columns), Rows: uint16(rows)}); err != nil {
		t.Fatal(err)
	}
	c := &console{t: t, master: master, ended: make(chan struct{})}
	c.cmd = exec.Command("holdfast", args...)
	c.cmd.Env = append(os.Environ(), "HOLDFAST_STORE="+store, "TERM=xterm", "NO_COLOR=")
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = slave, slave, slave
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	return c
}

// start has it run; when the test ends it is killed.
func (c *console) start() {
	c.t.Helper()
	if err := c.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.cmd.Stdin.(*os.File).Close()
	go c.readOutput()
	c.t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		<-c.ended
	})
}

// readOutput shows what is written until no process has the terminal open any more.
func (c *console) readOutput() {
	defer close(c.ended)
	data := make([]byte, 4096)
	for {
		n, err := c.master.Read(data)
		if err != nil {
			return
		}
		c.mu.Lock()
		c.all = append(c.all, data[:n]...)
		c.mu.Unlock()
	}
}

func (c *console) typeKeys(keys string) {
	c.t.Helper()
	if _, err := c.master.WriteString(keys); err != nil {
		c.t.Fatal(err)
	}
}

// waitText waits until a text was written to the terminal.
func (c *console) waitText(text string) {
	c.t.Helper()
	for began := time.Now(); !strings.Contains(c.text(), text); time.Sleep(time.Millisecond) {
		if time.Since(began) > testTimeout {
			c.t.Fatalf("no %q on the terminal:\n%s", text, c.text())
		}
	}
}

// exitCode waits for the end, and returns the exit code.
func (c *console) exitCode() int {
	c.t.Helper()
	err := c.cmd.Wait()
	<-c.ended
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	return c.cmd.ProcessState.ExitCode()
}

// text is all that was written to the terminal.
func (c *console) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(c.all)
}
